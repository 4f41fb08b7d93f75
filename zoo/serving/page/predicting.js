// Models that answer with labels, numbers or vectors.

import { bar, choiceOf, isolated, labelled, make, shown, table, textArea } from "./elements.js";
import { post, predict } from "./server.js";
import { makeView } from "./view.js";

const NAMES = { texts: "Text", first_texts: "First text", second_texts: "Second text" };

/** Returns fields for the inputs of a signature, and a function that returns what they hold, as inputs of one row. */
export function inputFields(signature, names = NAMES) {
  const areas = Object.keys(signature.inputs).map((name) => [name, textArea({ required: true })]);
  const parts = areas.map(([name, area]) => labelled(names[name] ?? name, area));
  return [parts, () => Object.fromEntries(areas.map(([name, area]) => [name, [area.value]]))];
}

/** Returns the view that shows the labels of a text with their probabilities, or predicted numbers. */
export function classifyView(model, signatures) {
  const signature = signatures.serving_default;
  const [parts, inputs] = inputFields(signature);
  const run = async (place, signal) => {
    const [answer, found] = await Promise.all([
      predict(model, "serving_default", inputs(), Object.keys(signature.outputs), signal),
      predict(model, "label_names", {}, ["label_names"], signal),
    ]);
    const labels = found.label_names;
    if (answer.values) {
      const rows = labels.map((label, index) => [label, shown(answer.values[0][index])]);
      place.replaceChildren(table("Predicted numbers", ["Name", "Number"], rows));
      return rows.map(([label, number]) => `${isolated(label)} ${number}`).join(", ");
    }
    const isChosen = (label, index) => (answer.has_label ? answer.has_label[0][index] : label === answer.label[0]);
    const rows = labels.map((label, index) => ({ label, share: answer.probabilities[0][index], chosen: isChosen(label, index) }));
    rows.sort((one, other) => other.share - one.share);
    const cells = rows.map(({ label, share, chosen }) => [label, shown(share), bar(share), chosen ? "✓ yes" : "no"]);
    place.replaceChildren(table("Labels", ["Label", "Probability", "Bar", "Chosen"], cells));
    const chosen = rows.filter((row) => row.chosen).map((row) => `${isolated(row.label)}, ${shown(row.share)}`);
    return chosen.length ? `Chosen: ${chosen.join("; ")}.` : "No label is chosen.";
  };
  return makeView({ parts, name: "Classify", run });
}

/** Returns the view that searches texts. */
export function searchView(model) {
  const query = make("input", { type: "search", required: true, dir: "auto", autocomplete: "off" });
  const texts = textArea({ required: true, rows: 5 });
  const run = async (place, signal) => {
    const documents = texts.value.split("\n").filter((line) => line.trim());
    if (!documents.length) throw new Error("Write at least one text.");
    const { results } = await post("v1/rerank", { model, query: query.value, documents }, signal);
    const rows = results.map(({ index, relevance_score: score }) => [documents[index], shown(score), bar(score)]);
    place.replaceChildren(table("Found", ["Text", "Cosine similarity", "Bar"], rows));
    return `The nearest of ${documents.length}: ${isolated(rows[0][0])}`;
  };
  return makeView({ parts: [labelled("Search for", query), labelled("Texts", texts, "One on each line.")], name: "Search", run });
}

/** Returns the view that compares texts by their vectors. */
export function embedView(model, signatures) {
  const texts = textArea({ required: true, rows: 5 });
  const endpoints = Object.keys(signatures).filter((name) => name.startsWith("serve_"));
  const prompt = choiceOf([["serving_default", "the default one"], ...endpoints.map((name) => [name, name.slice(6)])]);
  const parts = [labelled("Texts", texts, "One on each line.")];
  if (endpoints.length) parts.push(labelled("Prompt before each text", prompt));
  const run = async (place, signal) => {
    const lines = texts.value.split("\n").filter((line) => line.trim());
    if (!lines.length) throw new Error("Write at least one text.");
    const answer = await predict(model, prompt.value, { texts: lines }, ["embeddings"], signal);
    const unit = answer.embeddings.map(normalized);
    const names = lines.map((line, index) => `${index + 1}. ${line}`);
    const rows = unit.map((one, index) => [names[index], ...unit.map((other) => tinted(dot(one, other)))]);
    const head = ["Text", ...lines.map((_, index) => String(index + 1))];
    place.replaceChildren(table("Cosine similarities", head, rows));
    return `${lines.length} vectors of ${unit[0].length} numbers.`;
  };
  return makeView({ parts, name: "Compare", run });
}

/** Returns the view that fills masks. */
export function fillView(model, signatures) {
  const text = textArea({ required: true });
  const hint = "Write the mask token of the model where a word is missing, for example [MASK] or <mask>.";
  const run = async (place, signal) => {
    const outputs = Object.keys(signatures.serving_default.outputs);
    const { tokens, probabilities } = await predict(model, "serving_default", { texts: [text.value] }, outputs, signal);
    const tables = tokens[0].map((some, mask) => table(`Mask ${mask + 1}`, ["Token", "Probability", "Bar"],
      some.map((token, index) => [token, shown(probabilities[0][mask][index]), bar(probabilities[0][mask][index])])));
    place.replaceChildren(...tables);
    return tokens[0].map((some, mask) => `Mask ${mask + 1}: ${isolated(some[0])}.`).join(" ") || "There is no mask in the text.";
  };
  return makeView({ parts: [labelled("Text", text, hint)], name: "Fill", run });
}

function normalized(vector) {
  const length = Math.hypot(...vector) || 1;
  return vector.map((value) => value / length);
}

function dot(one, other) {
  return one.reduce((sum, value, index) => sum + value * other[index], 0);
}

function tinted(similarity) {
  return make("span", { class: "number" }, bar(similarity), shown(similarity));
}
