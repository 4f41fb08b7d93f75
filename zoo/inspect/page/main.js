// What a model does with a text: views of its attention, its predictions and what they depend on.

import { readAddress, writeAddress } from "./address.js";
import { unpack, unpackWeights } from "./arrays.js";
import { pills, slider } from "./controls.js";
import { gradientsView, layerNames, lensTable, normsTable, predictionsTable, READINGS, rowNames } from "./decisions.js";
import { choiceOf, isolated, labelled, make } from "./elements.js";
import { headsGrid } from "./heads.js";
import { attendedTable, heatMap, largest, visible } from "./heat.js";
import { legendOfAttention, legendOfGradients, legendOfLayers, legendOfPredictions, legendOfSigns } from "./legends.js";
import { linesView } from "./lines.js";

const OF_ATTENTION = ["lines", "heads", "matrix"];
const COLORS = [["auto", "as the system"], ["light", "light"], ["dark", "dark"]];

async function load() {
  const data = JSON.parse(document.getElementById("data").textContent);
  for (const name of Object.keys(data.weights)) data.weights[name] = await unpackWeights(data.weights[name]);
  for (const stack of Object.values(data.stacks)) {
    stack.norms = await unpack(stack.norms);
    stack.gradients = stack.gradients && await unpack(stack.gradients);
  }
  const decisions = data.decisions;
  if (decisions) {
    const shares = (await unpack(decisions.choiceProbabilities)).values;
    const ofTargets = (await unpack(decisions.targetProbabilities)).values;
    const { shape: [layers, rows, count], numbers } = decisions.choices;
    decisions.of = decisions.places.every((place) => place < 0) ? "Decision" : "Token";
    decisions.rowNames = rowNames(decisions, data.stacks.attention.tokens);
    decisions.layerNames = layerNames(layers, "output");
    decisions.best = (layer, row) => Array.from({ length: count }, (_, place) => {
      const index = (layer * rows + row) * count + place;
      return [decisions.names[numbers[index]], shares[index]];
    });
    decisions.targetProbability = (layer, row) => ofTargets[layer * rows + row];
  }
  return data;
}

// The kinds of attention that there are, the one that the page opens with first: name, tokens that attend, tokens attended to, weights, and whether heads count.
function kindsOf({ weights, stacks, decisions }) {
  const own = stacks.attention.tokens, source = stacks.source?.tokens;
  const targets = decisions?.targets.length === own.length && decisions.targets.every((target) => target !== null);
  const written = targets ? decisions.targets : own;
  const kinds = {
    cross: ["Cross-attention", written, source, weights.cross, true],
    alignment: ["Alignment", written, source, weights.cross, false],
    attention: [source ? "Self-attention of the decoder" : "Self-attention", own, own, weights.attention, true],
    source: ["Self-attention of the encoder", source, source, weights.source, true],
  };
  // of one head in one layer, the alignment is all
  if (weights.cross?.layers === 1 && weights.cross.heads === 1) delete kinds.cross;
  return Object.fromEntries(Object.entries(kinds).filter(([, [, , , found]]) => found));
}

function start(data) {
  const { stacks, decisions } = data;
  const kinds = kindsOf(data);
  const stackNames = { attention: stacks.source ? "decoder" : "text", source: "encoder" };
  const hasKinds = Object.keys(kinds).length > 0;
  const views = [
    ...(hasKinds ? [["lines", "Lines"], ["heads", "All heads"], ["matrix", "Matrix"]] : []),
    ...(decisions ? [["predictions", "Predictions"]] : []),
    ["layers", "Layers"],
    ...(stacks.attention.gradients ? [["gradients", "Gradients"]] : []),
  ];
  const readings = [
    ...(decisions ? READINGS.filter(([name]) => name !== "target" || decisions.targets.some((target) => target !== null)) : []),
    ...Object.keys(stacks).map((name) => [`norms-${name}`, stacks.source ? `Norms of the hidden states, ${stackNames[name]}` : "Norms of the hidden states"]),
  ];
  const state = { view: views[0][0], kind: Object.keys(kinds)[0] ?? "", layer: Infinity, head: 0, token: -1, depth: Infinity, row: 0, reading: readings[0][0], colors: "auto" };
  let grid = null, gridOf = "", follow = () => {};

  const place = make("div", { class: "result" });
  const legend = make("p", { class: "hint legend" });
  const colorChoice = choiceOf(COLORS);
  colorChoice.addEventListener("change", () => change({ colors: colorChoice.value }));
  const [chooseView, setView] = pills("What to show", views, (view) => change({ view }));
  const kindChoice = choiceOf(Object.entries(kinds).map(([name, [title]]) => [name, title]));
  kindChoice.addEventListener("change", () => change({ kind: kindChoice.value, token: -1 }));
  const [layerField, setLayer] = slider("Layer", String, (layer) => change({ layer }));
  const [headField, setHead] = slider("Head", (head) => head ? String(head) : "mean", (head) => change({ head }));
  const attention = make("div", { class: "columns" }, labelled("Attention", kindChoice), layerField, headField);
  const readingChoice = choiceOf(readings);
  readingChoice.addEventListener("change", () => change({ reading: readingChoice.value }));
  const reading = labelled("Show", readingChoice);
  const [depthField, setDepth] = slider("Read from", (depth) => decisions.layerNames[depth], (depth) => change({ depth }));
  const rowName = (row) => `${row + 1}: ${isolated(visible(decisions.rows[row]))} → ${isolated(visible(decisions.gradientOf[row]))}`;
  const [rowField, setRow] = slider("Prediction", rowName, (row) => change({ row }));

  /** Takes choices of the user or of the address, as far as there is such a thing. */
  function adopt(part) {
    for (const [name, value] of Object.entries(part)) {
      if (name in state) state[name] = typeof state[name] === "number" ? Number.parseInt(value, 10) || 0 : String(value);
    }
    const among = (pairs, value) => pairs.some(([name]) => name === value) ? value : pairs[0]?.[0] ?? "";
    const within = (value, least, most) => Math.max(least, Math.min(most, value));
    state.view = among(views, state.view);
    state.kind = among(Object.entries(kinds), state.kind);
    state.reading = among(readings, state.reading);
    state.colors = among(COLORS, state.colors);
    state.depth = within(state.depth, 0, (decisions?.layerNames.length ?? 1) - 1);
    state.row = within(state.row, 0, (decisions?.rows.length ?? 1) - 1);
    if (!hasKinds) return;
    const [, queries, , weights, hasHeads] = kinds[state.kind];
    state.layer = within(state.layer, 1, weights.layers);
    state.head = hasHeads ? within(state.head, 0, weights.heads) : 0;
    state.token = within(state.token, -1, queries.length - 1);
  }

  function change(part) {
    adopt(part);
    const { view, kind, layer, head, token, depth, row, colors } = state;
    const isOfAttention = OF_ATTENTION.includes(view);
    writeAddress({
      view,
      ...(isOfAttention && { kind, layer, head, ...(token >= 0 && { token }) }),
      ...(view === "predictions" && { depth }),
      ...(view === "layers" && { reading: state.reading }),
      ...(view === "gradients" && { row }),
      ...(colors !== "auto" && { colors }),
    });
    show();
  }

  function show() {
    const { view, colors } = state;
    const root = document.documentElement;
    if (root.dataset.colors !== colors) gridOf = ""; // pictures keep the colors that they were drawn with
    root.dataset.colors = colorChoice.value = colors;
    setView(view);
    attention.hidden = !OF_ATTENTION.includes(view);
    reading.hidden = view !== "layers";
    readingChoice.value = state.reading;
    depthField.hidden = view !== "predictions";
    rowField.hidden = view !== "gradients";
    follow = () => {};
    if (OF_ATTENTION.includes(view)) showAttention();
    if (view === "predictions") showPredictions();
    if (view === "layers") showLayers();
    if (view === "gradients") showGradients();
  }

  function showAttention() {
    const { view, kind, layer, head, token } = state;
    const [title, queries, keys, weights, hasHeads] = kinds[kind];
    kindChoice.value = kind;
    setLayer(1, weights.layers, layer);
    setHead(0, hasHeads ? weights.heads : 0, head);
    const whose = head ? `head ${head}` : weights.heads === 1 ? "one head" : "mean over heads";
    const shows = [`${title}, layer ${layer}, ${whose}`, queries, keys, weights.matrix(layer - 1, head - 1)];
    legend.textContent = legendOfAttention(view, queries === decisions?.targets);
    const parts = [attendedTable(...shows, whose)];
    if (view === "matrix") parts.unshift(...heatMap(...shows));
    if (view === "lines") {
      const [lines, followPage] = linesView(...shows.slice(1), token, (now) => change({ token: now }));
      parts.unshift(lines);
      follow = followPage;
    }
    if (view === "heads") {
      if (gridOf !== kind) {
        grid = headsGrid(weights, (nextLayer, nextHead) => change({ layer: nextLayer + 1, head: nextHead + 1 }));
        gridOf = kind;
      }
      grid[1](layer - 1, head - 1);
      parts.unshift(grid[0], ...heatMap(...shows));
    }
    replace(parts);
    follow();
  }

  function showPredictions() {
    legend.textContent = legendOfPredictions(decisions);
    setDepth(0, decisions.layerNames.length - 1, state.depth);
    replace([predictionsTable(decisions, state.depth)]);
  }

  function showLayers() {
    const name = state.reading;
    legend.textContent = legendOfLayers(name, decisions);
    if (!name.startsWith("norms-")) return place.replaceChildren(lensTable(decisions, name));
    const stack = name.slice("norms-".length);
    return place.replaceChildren(normsTable(readings.find(([value]) => value === name)[1], stacks[stack].tokens, stacks[stack].norms));
  }

  function showGradients() {
    const { row } = state;
    legend.textContent = legendOfGradients(decisions);
    setRow(0, decisions.rows.length - 1, row);
    const own = Object.values(stacks).map(({ gradients: { shape: [, length], values } }) => values.subarray(row * length, (row + 1) * length));
    const most = Math.max(...own.map(largest));
    place.replaceChildren(...Object.entries(stacks).flatMap(([name, { tokens, gradients }]) =>
      gradientsView(`Gradient times input, ${stackNames[name]}`, tokens, gradients, row, most)));
  }

  /** Puts parts on the page; what has the focus and stays, keeps it, and lists keep their place. */
  function replace(parts) {
    const label = document.activeElement?.getAttribute("aria-label");
    const isInside = place.contains(document.activeElement);
    const scrolled = new Map([...place.querySelectorAll(".scroll")].map((part) => [part.ariaLabel, [part.scrollLeft, part.scrollTop]]));
    place.replaceChildren(...parts);
    for (const part of place.querySelectorAll(".scroll")) [part.scrollLeft, part.scrollTop] = scrolled.get(part.ariaLabel) ?? [0, 0];
    if (isInside && label) place.querySelector(`[aria-label="${CSS.escape(label)}"]`)?.focus({ preventScroll: true });
  }

  const title = make("h1", {}, `What a ${data.task} does with a text`);
  const text = make("p", { class: "hint" }, ...Object.entries(stacks).reverse().map(([name, { tokens }]) =>
    make("span", { class: "given" }, make("strong", {}, `${stackNames[name]}: `), make("bdi", {}, tokens.map(visible).join(" ")))));
  const signs = legendOfSigns(Object.values(stacks).flatMap(({ tokens }) => tokens));
  if (signs) text.append(signs);
  document.body.append(
    make("header", {}, title, labelled("Colors", colorChoice)),
    make("main", {}, text, chooseView, attention, depthField, reading, rowField, legend, place),
  );
  const again = () => { gridOf = ""; show(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  addEventListener("resize", () => { if (state.view === "lines") show(); });
  addEventListener("scroll", () => follow(), { passive: true });
  addEventListener("hashchange", () => { adopt(readAddress()); show(); });
  adopt(readAddress());
  show();
}

start(await load());
