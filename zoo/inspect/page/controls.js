// Controls of the page: a slider with its value, and views to choose from.

import { make, newId } from "./elements.js";

/**
 * Returns a slider with its label and value, and a function that sets it.
 *
 * @param label   Its label.
 * @param name    From a number to what it is called.
 * @param change  Called with the number when it is moved.
 */
export function slider(label, name, change) {
  const id = newId();
  const input = make("input", { type: "range", id, step: "1" });
  const value = make("output", { for: id });
  const say = () => {
    value.textContent = name(Number(input.value));
    input.setAttribute("aria-valuetext", value.textContent);
  };
  input.addEventListener("input", () => {
    say();
    change(Number(input.value));
  });
  const field = make("div", { class: "field" }, make("label", { for: id }, label, " ", value), input);
  const set = (least, most, now) => {
    Object.assign(input, { min: least, max: most, value: now });
    input.disabled = least === most;
    say();
  };
  return [field, set];
}

/** Returns views to choose one of, pairs of value and name, and a function that sets the choice. */
export function pills(legend, pairs, change) {
  const radios = pairs.map(([value]) => make("input", { type: "radio", name: "view", value }));
  for (const radio of radios) radio.addEventListener("change", () => change(radio.value));
  const labels = pairs.map(([, name], index) => make("label", {}, radios[index], make("span", {}, name)));
  const set = (now) => { for (const radio of radios) radio.checked = radio.value === now; };
  return [make("fieldset", { class: "tasks" }, make("legend", {}, legend), ...labels), set];
}
