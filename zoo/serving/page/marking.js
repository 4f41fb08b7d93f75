// Models that find parts of a text: entities, labels of words, answers, replaced tokens.

import { isolated, labelled, make, shown, table, textArea } from "./elements.js";
import { markedText } from "./marked.js";
import { inputFields } from "./predicting.js";
import { predict } from "./server.js";
import { makeView } from "./view.js";

/** Returns the view that marks entities. */
export function entitiesView(model, signatures) {
  return markingView(model, "entities", signatures, "Find entities", (found) => {
    const spans = rowsOf(found, ["starts", "ends", "labels", "texts", "scores"]).filter((span) => span.end > span.start);
    const rows = spans.map((span) => [span.text, span.label, shown(span.score)]);
    return [spans, ["Part of the text", "Entity", "Score"], rows];
  });
}

/** Returns the view that marks words with their labels; those outside of everything, "O", stay unmarked. */
export function tagView(model, signatures) {
  return markingView(model, "serving_default", signatures, "Label words", (found) => {
    const words = rowsOf(found, ["starts", "ends", "tags", "words", "probabilities"]).filter((word) => word.end > word.start);
    const spans = words.map((word) => ({ ...word, label: word.tag }));
    const rows = spans.map((word) => [word.word, word.tag, shown(Math.max(...word.probability))]);
    return [spans.filter((span) => span.label !== "O"), ["Word", "Label", "Probability"], rows];
  });
}

/** Returns the view that marks tokens which seem to be in the place of others. */
export function replacedView(model, signatures) {
  return markingView(model, "serving_default", signatures, "Find replaced tokens", (found, text) => {
    const bytes = new TextEncoder().encode(text);
    const part = ({ start, end }) => new TextDecoder().decode(bytes.subarray(start, end));
    const tokens = rowsOf(found, ["starts", "ends", "probabilities"]).slice(0, found.counts[0]);
    const spans = tokens.map((token) => ({ ...token, label: shown(token.probability) }));
    const rows = spans.map((token) => [part(token), token.label]);
    return [spans.filter((token) => token.probability >= 0.5), ["Token", "Probability of being replaced"], rows];
  });
}

/** Returns the view that marks the answer to a question in a text. */
export function answerView(model, signatures) {
  const signature = signatures.serving_default;
  const names = { questions: "Question", contexts: "Text with the answer" };
  const [parts, inputs] = inputFields(signature, names);
  const run = async (place, signal) => {
    const asked = inputs();
    const found = await predict(model, "serving_default", asked, Object.keys(signature.outputs), signal);
    const [answer, start, end] = [found.answers[0], found.starts[0], found.ends[0]];
    const spans = end > start ? [{ start, end, label: "answer" }] : [];
    const rows = [[answer || "no answer", shown(found.scores[0])], ["no answer in the text", shown(found.no_answer[0])]];
    place.replaceChildren(
      markedText(asked.contexts[0], spans), table("Answer", ["Answer", "Probability"], answer ? rows : rows.slice(1)));
    return answer ? `Answer: ${isolated(answer)}` : "There is no answer in the text.";
  };
  return makeView({ parts, name: "Answer", run });
}

function markingView(model, endpoint, signatures, name, read) {
  const text = textArea({ required: true });
  const run = async (place, signal) => {
    const asked = text.value;
    const outputs = Object.keys(signatures[endpoint].outputs);
    const [spans, head, rows] = read(await predict(model, endpoint, { texts: [asked] }, outputs, signal), asked);
    place.replaceChildren(markedText(asked, spans), rows.length ? table("What was found", head, rows) : make("p", {}, "Nothing was found."));
    return spans.length ? `${spans.length} marked.` : "Nothing is marked.";
  };
  return makeView({ parts: [labelled("Text", text)], name, run });
}

/** The first row of some outputs, as objects whose keys are in the singular. */
function rowsOf(found, names) {
  const keys = names.map((name) => (name === "probabilities" ? "probability" : name.slice(0, -1)));
  return found[names[0]][0].map((_, place) => Object.fromEntries(names.map((name, index) => [keys[index], found[name][0][place]])));
}
