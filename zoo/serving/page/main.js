// The page: which models there are, which of them is shown, and the key where the server asks for one.

import { make } from "./elements.js";
import { viewsOf } from "./kinds.js";
import { get, useKey } from "./server.js";
import { stop } from "./view.js";

const part = (id) => document.getElementById(id);
const [keyForm, keyValue, choice, select, views, problem] =
  ["key", "key-value", "choice", "model", "views", "problem"].map(part);

let again; // the next try, where models could not answer

async function showModels() {
  const { data } = await get("v1/models");
  keyForm.hidden = true;
  choice.hidden = false;
  select.replaceChildren(...data.map(({ id }) => make("option", { value: id }, id)));
  if (data.length) await showModel();
  else say("There is no model on this server.");
}

async function showModel() {
  stop();
  const model = select.value;
  views.replaceChildren();
  const about = await get(`v1/models/${encodeURIComponent(model)}/metadata`);
  if (model !== select.value) return; // another one was chosen in the meantime
  const signatures = about.metadata.signature_def.signature_def;
  const found = viewsOf(signatures);
  if (!found.length) {
    say(`This page has no form for the endpoints of ${model}: ${Object.keys(signatures).join(", ")}.`);
    return;
  }
  const made = new Map();
  const place = make("div");
  const show = ({ name, view }) => {
    stop();
    if (!made.has(name)) made.set(name, view(model, signatures));
    place.replaceChildren(made.get(name));
  };
  const radios = found.map((each, index) => {
    const radio = make("input", { type: "radio", name: "view", value: each.name, checked: index === 0 });
    radio.addEventListener("change", () => show(each));
    return make("label", {}, radio, make("span", {}, each.name));
  });
  const tasks = make("fieldset", { class: "tasks" }, make("legend", {}, "What to try"), ...radios);
  views.replaceChildren(...(found.length > 1 ? [tasks] : []), place);
  show(found[0]);
}

async function guarded(action) {
  clearTimeout(again);
  say("");
  try {
    await action();
  } catch (error) {
    say(error.message);
    if (error.status === 401) {
      keyForm.hidden = false;
      keyValue.focus();
    }
    // Models are being loaded, or exported first, which takes a minute. The list stays once it is there, so that
    // another model may be chosen while one cannot answer.
    if (error.status === 503) again = setTimeout(() => guarded(choice.hidden ? showModels : showModel), 2000);
  }
}

function say(words) {
  problem.textContent = words;
  problem.hidden = !words;
}

keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(keyValue.value);
  keyValue.value = "";
  guarded(showModels);
});
select.addEventListener("change", () => guarded(showModel));
guarded(showModels);
