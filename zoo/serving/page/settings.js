// Settings of texts that are written token by token. What is left empty is as the export says.

import { labelled, make, textArea } from "./elements.js";

const NUMBERS = [
  ["temperature", "Temperature", "any", "0 takes the likeliest token."],
  ["top_p", "Top p", "any", "Keeps the likeliest tokens, up to this probability."],
  ["max_tokens", "Most tokens", "1", null],
  ["seed", "Seed", "1", "The same seed draws the same text."],
];

/** Returns the fields of the settings, and a function that returns what they hold, for a request. */
export function makeSettings(before = []) {
  const inputs = NUMBERS.map(([name, , step]) => [name, make("input", { type: "number", step, inputmode: "decimal" })]);
  const stops = textArea({ rows: 2 });
  const fields = NUMBERS.map(([, label, , hint], index) => labelled(label, inputs[index][1], hint));
  const part = make("details", { class: "settings" }, make("summary", {}, "Settings"), ...before,
    make("p", { class: "hint" }, "What is empty is as the model has it."),
    make("div", { class: "columns" }, ...fields),
    labelled("Stop strings", stops, "One on each line; \\n stands for a new line. The text ends before the first of them."));
  const values = () => {
    const given = inputs.filter(([, input]) => input.value !== "").map(([name, input]) => [name, Number(input.value)]);
    const lines = stops.value.split("\n").filter((line) => line !== "");
    const stop = lines.map((line) => line.replaceAll("\\n", "\n"));
    return { ...Object.fromEntries(given), ...(stop.length && { stop }) };
  };
  return [part, values];
}
