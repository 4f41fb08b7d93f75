// Parts of pages. Texts become text nodes: nothing that a user or a model writes is read as HTML.

let count = 0;

/** Returns an element with attributes and children; those that are strings become text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const RIGHT_TO_LEFT = "\\p{Script=Arabic}\\p{Script=Hebrew}\\p{Script=Syriac}\\p{Script=Thaana}\\p{Script=Nko}\\p{Script=Adlam}";
const HAS_RIGHT_TO_LEFT = new RegExp(`[${RIGHT_TO_LEFT}]`, "u");
const STARTS_RIGHT_TO_LEFT = new RegExp(`^\\P{L}*[${RIGHT_TO_LEFT}]`, "u");

/** Returns the direction of a text, that of its first letter, for parts of a page whose own texts are isolated. */
export function directionOf(text) {
  return STARTS_RIGHT_TO_LEFT.test(text) ? "rtl" : "ltr";
}

/** Returns a text as it stands in a sentence where no elements can be: one from right to left does not turn what follows. */
export function isolated(text) {
  return HAS_RIGHT_TO_LEFT.test(text) ? `\u2068${text}\u2069` : text;
}

/** Returns names with a number each as a line of a page; each name has its own direction. */
export function namedNumbers(pairs) {
  return make("span", {}, ...pairs.flatMap(([name, number], place) => [
    ...(place ? [", "] : []), make("bdi", {}, name), `: ${number}`]));
}

/** Returns an id that the page does not have yet. */
export function newId() {
  count += 1;
  return `part-${count}`;
}

/** Returns a control with its label, and a hint where there is one. */
export function labelled(label, control, hint = null) {
  control.id ||= newId();
  const parts = [make("label", { for: control.id }, label), control];
  if (hint) {
    const id = newId();
    control.setAttribute("aria-describedby", id);
    parts.push(make("p", { class: "hint", id }, hint));
  }
  return make("div", { class: "field" }, ...parts);
}

/** Returns a field for texts of any length. */
export function textArea(attributes = {}) {
  return make("textarea", { rows: 4, dir: "auto", spellcheck: "false", ...attributes });
}

/** Returns a list to choose from: pairs of value and name. */
export function choiceOf(pairs) {
  return make("select", {}, ...pairs.map(([value, name]) => make("option", { value }, name)));
}

/** Returns a table in a part of the page that scrolls by itself; keys move it when it has the focus. */
export function table(caption, head, rows) {
  const header = make("tr", {}, ...head.map((name) => make("th", { scope: "col" }, name)));
  const body = rows.map((cells) =>
    make("tr", {}, ...cells.map((cell, index) =>
      make(index ? "td" : "th", { scope: index ? null : "row", dir: "auto" }, cell))));
  const whole = make("table", {}, make("caption", {}, caption), make("thead", {}, header), make("tbody", {}, ...body));
  return make("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" }, whole);
}

/** Returns a bar from 0 to 1; the number beside it says the same. */
export function bar(share) {
  const inside = make("span");
  inside.style.inlineSize = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return make("span", { class: "bar", "aria-hidden": "true" }, inside);
}

/** Returns a number as it is shown. */
export function shown(number) {
  return number.toFixed(3);
}
