// What all forms have in common: sending, stopping, keys, errors, and what is said of it.

import { make } from "./elements.js";
import { announce, begin } from "./announcer.js";

/** The request that is under way, of any form. */
let running = null;

/** Stops the request that is under way. */
export function stop() {
  running?.abort();
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running) {
    event.preventDefault();
    stop();
  }
});

/**
 * Returns a form with a place for results under it.
 *
 * @param parts  The fields of the form.
 * @param name   What the button for sending says.
 * @param run    Is given the place for results and a signal that says when to stop; returns what is said at the end.
 * @param place  The place for results, where there is one already.
 * @param more   Further buttons.
 */
export function makeView({ parts, name, run, place = make("div", { class: "result" }), more = [] }) {
  const send = make("button", { type: "submit", class: "send" }, name);
  const halt = make("button", { type: "button", "aria-disabled": "true" }, "Stop");
  const problem = make("p", { role: "alert", class: "problem", hidden: true });
  const status = make("p", { class: "status" });
  const keys = make("p", { class: "hint keys" },
    make("kbd", {}, "Ctrl"), "+", make("kbd", {}, "Enter"), " sends, ", make("kbd", {}, "Esc"), " stops.");
  const form = make("form", { class: "card" }, ...parts, make("div", { class: "buttons" }, send, halt, ...more, keys));
  const working = (is) => {
    // buttons that have the focus keep it
    send.setAttribute("aria-disabled", is);
    halt.setAttribute("aria-disabled", !is);
    place.setAttribute("aria-busy", is);
  };
  halt.addEventListener("click", stop);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  form.addEventListener("invalid", (event) => {
    // what is wrong is shown, also where settings are folded
    const folded = event.target.closest("details");
    if (folded) folded.open = true;
  }, true);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running) return;
    const own = (running = new AbortController());
    const end = (words) => {
      status.textContent = words;
      announce(words);
    };
    begin();
    problem.hidden = true;
    problem.textContent = "";
    status.textContent = "Working …";
    working(true);
    try {
      end(await run(place, own.signal));
    } catch (error) {
      if (error.name === "AbortError") end("Stopped.");
      else {
        status.textContent = "";
        problem.textContent = error.message;
        problem.hidden = false;
      }
    } finally {
      running = null;
      working(false);
    }
  });
  return make("div", { class: "view" }, form, problem, status, place);
}
