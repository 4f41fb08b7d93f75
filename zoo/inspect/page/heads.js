// All heads of all layers side by side, small.

import { make } from "./elements.js";
import { inks, largest, paint } from "./heat.js";

/**
 * Returns the grid of heads, and a function that marks one as chosen.
 *
 * @param weights  What unpackWeights() returns.
 * @param choose   Called with layer and head, from 0.
 */
export function headsGrid(weights, choose) {
  const { layers, heads, queries, keys } = weights;
  const colors = inks();
  const buttons = Array.from({ length: layers * heads }, (_, index) => {
    const layer = Math.floor(index / heads), head = index % heads;
    const canvas = make("canvas", { "aria-hidden": "true" });
    const matrix = weights.matrix(layer, head);
    paint(canvas, matrix, queries, keys, largest(matrix), colors);
    const name = `Layer ${layer + 1}, head ${head + 1}`;
    const button = make("button", { type: "button", class: "head", title: name, "aria-label": name, tabindex: "-1" }, canvas);
    button.addEventListener("click", () => choose(layer, head));
    return button;
  });
  const name = (text) => make("span", { class: "hint", "aria-hidden": "true" }, text);
  const head = [name("head"), ...Array.from({ length: heads }, (_, number) => name(number + 1))];
  const rows = Array.from({ length: layers }, (_, layer) =>
    [name(`layer ${layer + 1}`), ...buttons.slice(layer * heads, (layer + 1) * heads)]);
  const grid = make("div", { class: "heads", role: "group", "aria-label": "Heads: a row for each layer; arrows move" },
    ...head, ...rows.flat());
  grid.style.setProperty("--heads", heads);
  let chosen = 0;
  const mark = (layer, head) => {
    chosen = layer * heads + Math.max(head, 0);
    buttons.forEach((button, index) => {
      button.setAttribute("aria-pressed", String(index === chosen && head >= 0));
      button.tabIndex = index === chosen ? 0 : -1;
    });
  };
  grid.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: heads, ArrowUp: -heads };
    const next = chosen + (steps[event.key] ?? NaN);
    if (!(next in buttons)) return;
    event.preventDefault();
    choose(Math.floor(next / heads), next % heads);
    buttons[next].focus();
  });
  return [make("div", { class: "scroll", role: "region", "aria-label": "Heads", tabindex: "0" }, grid), mark];
}
