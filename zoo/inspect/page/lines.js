// Attention of one head as lines between two columns of tokens.

import { make, shown } from "./elements.js";
import { inks, largest, visible } from "./heat.js";

const ROW = 26; // pixels from one token to the next
const NARROWEST = 96, WIDEST = 420, SHARE = 0.34; // of the space between the columns: pixels, and share of the window
const FAINTEST = 0.02; // share of the largest weight below which no line is drawn
const MOST_LINES = 1000; // of more, the strongest of each token alone are drawn
const TALLEST = 4096; // pixels: browsers draw nothing on a canvas that is too large

/**
 * Returns the two columns with lines between them, and a function that draws what the window shows, after scrolling.
 *
 * @param queries  Tokens that attend.
 * @param keys     Tokens that are attended to.
 * @param weights  Numbers, row by row.
 * @param chosen   Number of the token whose lines alone are drawn, -1 for all.
 * @param choose   Called with the number of the token that is chosen.
 */
export function linesView(queries, keys, weights, chosen, choose) {
  const width = Math.round(Math.max(NARROWEST, Math.min(WIDEST, SHARE * innerWidth)));
  const height = ROW * Math.max(queries.length, keys.length);
  const tall = Math.min(height, TALLEST);
  const canvas = make("canvas", { width: 2 * width, height: 2 * tall, "aria-hidden": "true" });
  canvas.style.width = `${width}px`;
  canvas.style.height = `${tall}px`;
  const space = make("div", { class: "space" }, canvas);
  space.style.width = `${width}px`;
  space.style.height = `${height}px`;
  const item = (token, attributes) => {
    const number = make("span", { class: "weight" });
    return [make("li", attributes, make("bdi", {}, visible(token)), number), number];
  };
  const from = queries.map((query, row) =>
    item(query, { role: "option", id: `query-${row}`, "aria-selected": String(row === chosen) }));
  const to = keys.map((key) => item(key, {}));
  const left = make("ol", { class: "tokens from", role: "listbox", tabindex: "0", "aria-label": "Token that attends" },
    ...from.map(([part]) => part));
  const right = make("ol", { class: "tokens to", "aria-label": "Attended to" }, ...to.map(([part]) => part));
  if (chosen >= 0) left.setAttribute("aria-activedescendant", `query-${chosen}`);
  const weight = (row, column) => weights[row * keys.length + column];
  let top = 0, redraw = () => {};
  /** Shows the lines of a row, or of a column, alone; -1 for all. */
  const show = (row, column) => {
    redraw = () => draw(canvas, top, width, tall, weights, keys.length, row, column);
    redraw();
    from.forEach(([part, number], each) => {
      part.classList.toggle("now", each === row);
      number.textContent = column < 0 ? "" : shown(weight(each, column));
    });
    to.forEach(([part, number], each) => {
      part.classList.toggle("now", each === column);
      number.textContent = row < 0 ? "" : shown(weight(row, each));
    });
  };
  from.forEach(([part], row) => {
    part.addEventListener("pointerenter", () => show(row, -1));
    part.addEventListener("click", () => choose(row === chosen ? -1 : row));
  });
  to.forEach(([part], column) => part.addEventListener("pointerenter", () => show(-1, column)));
  for (const list of [left, right]) list.addEventListener("pointerleave", () => show(chosen, -1));
  left.addEventListener("keydown", (event) => {
    const last = queries.length - 1;
    const steps = { ArrowDown: Math.min(chosen + 1, last), ArrowUp: Math.max(chosen - 1, 0), Home: 0, End: last, Escape: -1 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    choose(steps[event.key]);
    document.getElementById(`query-${steps[event.key]}`)?.scrollIntoView({ block: "nearest" });
  });
  show(chosen, -1);
  const follow = () => {
    const start = -space.getBoundingClientRect().top; // of the window
    if (Math.max(0, start) >= top && Math.min(height, start + innerHeight) <= top + tall) return;
    top = Math.max(0, Math.min(height - tall, Math.round(start + (innerHeight - tall) / 2)));
    canvas.style.top = `${top}px`;
    redraw();
  };
  const whole = make("div", { class: "scroll", role: "region", "aria-label": "Lines between tokens", tabindex: "0" },
    make("div", { class: "lines" }, left, space, right));
  return [whole, follow];
}

/**
 * Draws the lines of one row, or of one column, or all; the strongest is that of the largest weight among them.
 *
 * Of these, it draws what is between `top` and `top + tall`.
 */
function draw(canvas, top, width, tall, weights, columns, row, column) {
  const context = canvas.getContext("2d");
  const color = inks()[1].join(" ");
  context.setTransform(2, 0, 0, 2, 0, -2 * top);
  context.clearRect(0, top, width, tall);
  const last = weights.length / columns - 1;
  const [firstRow, lastRow] = row < 0 ? [0, last] : [row, row];
  const [firstColumn, lastColumn] = column < 0 ? [0, columns - 1] : [column, column];
  const size = (place) => Math.abs(weights[place]);
  let most = 0;
  for (let from = firstRow; from <= lastRow; from += 1) {
    for (let to = firstColumn; to <= lastColumn; to += 1) most = Math.max(most, size(from * columns + to));
  }
  if (!(most > 0)) return;
  const found = [], above = top / ROW - 1, below = (top + tall) / ROW + 1;
  for (let from = firstRow; from <= lastRow; from += 1) {
    for (let to = firstColumn; to <= lastColumn; to += 1) {
      const isSeen = (from > above || to > above) && (from < below || to < below);
      if (isSeen && size(from * columns + to) >= FAINTEST * most) found.push(from * columns + to);
    }
  }
  context.lineWidth = 2;
  for (const place of found.length > MOST_LINES ? strongest(found, columns, size) : found) {
    context.strokeStyle = `rgb(${color} / ${size(place) / most})`;
    context.beginPath();
    context.moveTo(0, (Math.floor(place / columns) + 0.5) * ROW);
    context.lineTo(width, (place % columns + 0.5) * ROW);
    context.stroke();
  }
}

/** Returns those of the places that are among the strongest of their row, as many of each row as there is room for. */
function strongest(places, columns, size) {
  const rows = Map.groupBy(places, (place) => Math.floor(place / columns));
  const each = Math.max(1, Math.floor(MOST_LINES / rows.size));
  return [...rows.values()].flatMap((row) => row.sort((one, other) => size(other) - size(one)).slice(0, each));
}
