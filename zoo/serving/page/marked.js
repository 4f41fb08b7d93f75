// Parts of texts, marked by their places in bytes of UTF-8.

import { make } from "./elements.js";

const COLORS = 6;

/**
 * Returns a paragraph with parts of a text marked.
 *
 * @param text   The text.
 * @param spans  Objects with start and end in bytes, and a label, in the order of the text; they do not overlap.
 */
export function markedText(text, spans) {
  const bytes = new TextEncoder().encode(text);
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const part = (start, end) => decoder.decode(bytes.subarray(start, end));
  const labels = [...new Set(spans.map((span) => span.label))];
  const paragraph = make("p", { class: "text marked", dir: "auto" });
  let place = 0;
  for (const { start, end, label } of spans) {
    paragraph.append(part(place, start));
    const color = `mark-${labels.indexOf(label) % COLORS}`;
    const name = make("span", { class: "label", dir: "auto" }, label);
    paragraph.append(make("mark", { class: color }, make("span", { class: "part" }, part(start, end)), name));
    place = end;
  }
  paragraph.append(part(place, bytes.length));
  return paragraph;
}
