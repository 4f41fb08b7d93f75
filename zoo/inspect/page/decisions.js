// What the model predicts, what it would have predicted after each layer, and what that depends on.

import { bar, directionOf, isolated, make, namedNumbers, shown, table } from "./elements.js";
import { distinct, largest, visible } from "./heat.js";

/** Returns what the layers of a reading are called, the embeddings first. */
export function layerNames(count, last) {
  if (count === 1) return ["output"];
  return Array.from({ length: count }, (_, layer) => layer === count - 1 ? last : layer ? `layer ${layer}` : "embeddings");
}

/** Returns what tables call the rows of decisions: a token that is decided on has the number that it has in the text. */
export function rowNames({ rows, places }, tokens) {
  const own = distinct(rows), all = distinct(tokens);
  return rows.map((name, row) => name === tokens[places[row]] ? all[places[row]] : own[row]);
}

/** Returns a text, or a part of a page, over a bar; without a bar for a share of null. More classes say how it looks. */
function cell(share, text, title = null, look = "") {
  return make("span", { class: `number ${look}`, title }, ...(share === null ? [] : [bar(share)]), make("bdi", {}, text));
}

/** Returns the table of predictions read from a layer: the target with its probability, and the top choices. */
export function predictionsTable(decisions, layer) {
  const hasTargets = decisions.targets.some((target) => target !== null);
  const named = (name, share, look) => cell(decisions.areValues ? null : share, namedNumbers([[visible(name), shown(share)]]), null, look);
  const head = [decisions.of, ...(hasTargets ? ["Target"] : []), ...decisions.best(layer, 0).map((_, place) => `Choice ${place + 1}`)];
  const rows = decisions.rowNames.map((name, row) => {
    const choices = decisions.best(layer, row).map(([choice, share]) => named(choice, share, hit(decisions, row, choice)));
    if (!hasTargets) return [name, ...choices];
    const target = decisions.targets[row];
    return [name, target === null ? "" : named(target, decisions.targetProbability(layer, row)), ...choices];
  });
  const number = decisions.areValues ? "Values" : "Predictions and their probabilities";
  return table(`${number}, read from: ${decisions.layerNames[layer]}`, head, rows);
}

function hit(decisions, row, choice) {
  return choice === decisions.targets[row] ? "hit" : "";
}

// What the table of layers can show: name, and what it is called.
export const READINGS = [["choice", "Logit lens: top choice"], ["target", "Logit lens: probability of the target"]];

/** Returns the table of what each layer would predict if it were the last. */
export function lensTable(decisions, reading) {
  const names = decisions.layerNames;
  const part = (layer, row) => {
    if (reading === "target") {
      if (decisions.targets[row] === null) return "";
      const share = decisions.targetProbability(layer, row);
      return cell(share, shown(share));
    }
    const best = decisions.best(layer, row), [choice, share] = best[0];
    const said = best.map(([each, likely]) => `${isolated(visible(each))}: ${shown(likely)}`).join(", ");
    return decisions.areValues ? cell(null, shown(share), said) : cell(share, visible(choice), said, hit(decisions, row, choice));
  };
  const rows = decisions.rowNames.map((name, row) => [name, ...names.map((_, layer) => part(layer, row))]);
  return table("What each layer would predict if it were the last", [decisions.of, ...names], rows);
}

/** Returns the table of the norms of hidden states. */
export function normsTable(title, tokens, { shape: [layers, length], values }) {
  const names = layerNames(layers, `layer ${layers - 1}`);
  const most = largest(values);
  const rows = distinct(tokens).map((token, place) => [token, ...names.map((_, layer) => {
    const norm = values[layer * length + place];
    return cell(norm / most, norm.toFixed(2));
  })]);
  return table(title, ["Token", ...names], rows);
}

/** Returns tokens with the gradient of a prediction times each: a stroke under each, and a table. */
export function gradientsView(title, tokens, { shape: [, length], values }, row, most) {
  const own = values.subarray(row * length, (row + 1) * length);
  const share = (value) => most > 0 ? Math.abs(value) / most : 0;
  const sign = (value) => value < 0 ? "against" : "";
  const words = tokens.map((token, place) => {
    const part = make("span", { class: `stroke ${sign(own[place])}`, title: own[place].toPrecision(3) }, make("bdi", {}, visible(token)));
    part.style.setProperty("--share", share(own[place]));
    return part;
  });
  const rows = distinct(tokens).map((token, place) => [token, cell(share(own[place]), own[place].toPrecision(3), null, sign(own[place]))]);
  const dir = directionOf(tokens.join(""));
  return [make("p", { class: "strokes", dir, "aria-hidden": "true" }, ...words), table(title, ["Token", "Gradient times input"], rows)];
}
