// What a model attends to: a heat map of the weights of a layer, and a table that says the same in words.

import { choiceOf, labelled, make, textArea } from "./elements.js";
import { attendedTable, heatMap } from "./heat.js";
import { inputFields } from "./predicting.js";
import { predict } from "./server.js";
import { makeView } from "./view.js";

// What the outputs of weights are called, and which outputs name their rows and columns.
const KINDS = {
  attention: ["Tokens to tokens", "tokens", "tokens"],
  cross: ["Written tokens to source", "written_tokens", "source_tokens"],
  encoder: ["Source to source", "source_tokens", "source_tokens"],
  decoder: ["Written tokens to those before", "written_tokens", "given_tokens"],
};

/** Returns the view of attention weights. */
export function attentionView(model, signatures) {
  const signature = signatures.attention;
  const names = { texts: "Text", first_texts: "First text", second_texts: "Second text", questions: "Question", contexts: "Context", sources: "Source" };
  const hasTargets = "targets" in signature.inputs;
  const { targets: _, ...others } = signature.inputs;
  const [parts, inputs] = inputFields({ inputs: others }, names);
  const target = textArea();
  if (hasTargets) parts.push(labelled("Text that is written", target, "Empty for what the model writes."));
  let drawAgain = () => {};
  // pictures keep the colors that they were drawn with
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAgain());
  const run = async (place, signal) => {
    const asked = inputs();
    if (hasTargets) {
      asked.targets = [target.value];
      if (!target.value) {
        const outputs = Object.keys(signatures.serving_default.outputs);
        const written = await predict(model, "serving_default", { texts: asked.sources }, outputs, signal);
        asked.targets = [[written.texts[0]].flat()[0]];
      }
    }
    const found = await predict(model, "attention", asked, Object.keys(signature.outputs), signal);
    const kinds = Object.keys(KINDS).filter((kind) => kind in found);
    const kind = choiceOf(kinds.map((each) => [each, KINDS[each][0]]));
    const layer = choiceOf([]);
    const picture = make("div", { class: "picture" });
    const chooseKind = () => {
      const last = found[kind.value][0].length;
      layer.replaceChildren(...Array.from({ length: last }, (_, index) => make("option", { value: index }, String(index + 1))));
      layer.value = last - 1;
      chooseLayer();
    };
    const chooseLayer = () => {
      const [title, rows, columns] = KINDS[kind.value];
      const [queries, keys] = [rows, columns].map((name) => found[name][0].slice(0, lengthOf(found, name)));
      const weights = found[kind.value][0][layer.value].slice(0, queries.length).flatMap((row) => row.slice(0, keys.length));
      const shows = [`${title}, layer ${Number(layer.value) + 1}`, queries, keys, weights];
      picture.replaceChildren(...heatMap(...shows), attendedTable(...shows, "the mean over heads"));
    };
    kind.addEventListener("change", chooseKind);
    layer.addEventListener("change", chooseLayer);
    place.replaceChildren(make("div", { class: "columns" }, labelled("From and to", kind), labelled("Layer", layer)), picture);
    chooseKind();
    drawAgain = chooseLayer;
    return `Weights of ${found[kinds[0]][0].length} layers, the mean over heads.`;
  };
  return makeView({ parts, name: "Show attention", run });
}

function lengthOf(found, name) {
  return found[{ tokens: "lengths", source_tokens: "source_lengths" }[name] ?? "written_lengths"][0];
}
