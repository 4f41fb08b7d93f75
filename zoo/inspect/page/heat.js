// Weights between tokens: a picture with one cell for each, and a table that says the same in words.

import { make, namedNumbers, shown, table } from "./elements.js";

const MOST_NAMED = 5; // columns that the table names for each row
const LEAST_NAMED = 0.0005;
const CELL = "1.25rem";

/** Returns the colors of the page from "no weight" to "most weight", as red, green and blue. */
export function inks() {
  const probe = make("span", { hidden: true });
  probe.style.forcedColorAdjust = "none";
  document.body.append(probe);
  const colors = ["--tint", "--accent"].map((name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color.match(/\d+/g).map(Number);
  });
  probe.remove();
  return colors;
}

/**
 * Paints one pixel for each weight.
 *
 * @param canvas   The canvas, which gets as many pixels.
 * @param weights  Numbers, row by row.
 * @param rows     Number of rows.
 * @param columns  Number of columns.
 * @param most     The weight that gets the full color.
 * @param colors   What inks() returns.
 */
export function paint(canvas, weights, rows, columns, most, colors = inks()) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const [low, high] = colors;
  for (let place = 0; place < rows * columns; place += 1) {
    const share = most > 0 ? Math.min(1, Math.abs(weights[place]) / most) : 0;
    for (let part = 0; part < 3; part += 1) image.data[4 * place + part] = low[part] + share * (high[part] - low[part]);
    image.data[4 * place + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

/** Returns the largest size of some numbers. */
export function largest(numbers) {
  let most = 0;
  for (const number of numbers) most = Math.max(most, Math.abs(number));
  return most;
}

/**
 * Returns a heat map with the tokens at its sides, and a line that names the cell under the pointer.
 *
 * @param title    What it shows.
 * @param queries  Names of the rows.
 * @param keys     Names of the columns.
 * @param weights  Numbers, row by row.
 */
export function heatMap(title, queries, keys, weights) {
  const most = largest(weights), ofQueries = distinct(queries), ofKeys = distinct(keys);
  const legend = `The largest weight is ${shown(most)}.`;
  const cells = make("canvas", { class: "heat-cells" });
  cells.style.width = `calc(${keys.length} * ${CELL})`;
  cells.style.height = `calc(${queries.length} * ${CELL})`;
  paint(cells, weights, queries.length, keys.length, most);
  const said = make("p", { class: "hint said" }, legend);
  cells.addEventListener("pointermove", (event) => {
    const box = cells.getBoundingClientRect();
    const row = Math.min(queries.length - 1, Math.floor((event.clientY - box.top) / box.height * queries.length));
    const column = Math.min(keys.length - 1, Math.floor((event.clientX - box.left) / box.width * keys.length));
    if (row < 0 || column < 0) return;
    said.replaceChildren(make("bdi", {}, ofQueries[row]), " → ",
      namedNumbers([[ofKeys[column], shown(weights[row * keys.length + column])]]));
  });
  cells.addEventListener("pointerleave", () => { said.textContent = legend; });
  const name = (token, kind) => make("span", { class: kind, title: visible(token) }, make("bdi", {}, visible(token)));
  const head = make("div", { class: "heat-row" }, make("span", { class: "heat-name" }), ...keys.map((key) => name(key, "heat-key")));
  const names = make("div", {}, ...queries.map((query) => name(query, "heat-name")));
  const map = make("div", { class: "heat", role: "img", "aria-label": `Heat map: ${title}. The table below says the same.` },
    head, make("div", { class: "heat-row" }, names, cells));
  return [make("div", { class: "scroll", role: "region", "aria-label": "Heat map", tabindex: "0" }, map), said];
}

/** Returns a table of what each token attends to most; arguments as for heatMap(), and whose weights these are. */
export function attendedTable(title, queries, keys, weights, whose) {
  const ofKeys = distinct(keys);
  const lines = distinct(queries).map((token, row) => {
    const order = ofKeys.map((key, column) => [weights[row * keys.length + column], key]);
    const named = order.filter(([weight]) => weight >= LEAST_NAMED).sort((one, other) => other[0] - one[0]);
    return [token, namedNumbers(named.slice(0, MOST_NAMED).map(([weight, key]) => [key, shown(weight)]))];
  });
  return table(title, ["Token", `Attends most to (${whose})`], lines);
}

/** Returns tokens as they are shown, with "#1", "#2" and so on behind those that are there several times. */
export function distinct(tokens) {
  const names = tokens.map(visible), before = new Map();
  return names.map((name, place) => {
    const number = (before.get(name) ?? 0) + 1;
    before.set(name, number);
    return number > 1 || names.includes(name, place + 1) ? `${name} #${number}` : name;
  });
}

// Control characters, and those that turn the direction of text, also of what stands behind them.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** Returns a token as it is shown: spaces and line breaks by signs, what would not be seen by its number. */
export function visible(token) {
  const number = (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return token.replaceAll(" ", "␣").replaceAll("\n", "⏎").replace(UNSEEN, number) || "∅";
}
