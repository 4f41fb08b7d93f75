// What a model can be tried with: told by what its endpoints take and return.

import { attentionView } from "./attention.js";
import { answerView, entitiesView, replacedView, tagView } from "./marking.js";
import { classifyView, embedView, fillView, searchView } from "./predicting.js";
import { chatView, completeView, textToTextView } from "./writing.js";

/** Returns the names of the views of a model, and the functions that make them, from its signatures. */
export function viewsOf(signatures) {
  const outputs = new Set(Object.keys(signatures.serving_default.outputs));
  const has = (...names) => names.every((name) => outputs.has(name));
  const all = [
    ["Chat", chatView, "chat_tokens" in signatures],
    ["Complete", completeView, "advance" in signatures],
    ["Write", textToTextView, has("texts") && !("advance" in signatures)],
    ["Classify", classifyView, "label_names" in signatures && (has("probabilities", "label") || has("has_label") || has("values"))],
    ["Entities", entitiesView, "entities" in signatures],
    ["Words", tagView, has("tags", "starts")],
    ["Answer", answerView, has("answers", "starts")],
    ["Search", searchView, has("embeddings")],
    ["Compare", embedView, has("embeddings")],
    ["Fill", fillView, has("tokens", "probabilities")],
    ["Replaced tokens", replacedView, has("probabilities", "counts")],
    ["Attention", attentionView, "attention" in signatures],
  ];
  return all.filter(([, , fits]) => fits).map(([name, view]) => ({ name, view }));
}
