// Language models: texts that go on, and conversations, shown as they are written.

import { announce, announcePiece } from "./announcer.js";
import { isolated, labelled, make, textArea } from "./elements.js";
import { markdown } from "./markdown.js";
import { events, post, predict } from "./server.js";
import { makeSettings } from "./settings.js";
import { makeView, stop } from "./view.js";

const ROLES = { system: "System message", user: "You", assistant: "Model" };
const REASONS = { stop: "The text has ended.", length: "The text has its most tokens." };

/** Returns the view that continues a text. */
export function completeView(model) {
  const prompt = textArea({ required: true });
  const [settings, values] = makeSettings();
  return makeView({
    parts: [labelled("Text to continue", prompt), settings],
    name: "Continue",
    run: (place, signal) => {
      const written = make("span", { class: "written" });
      place.replaceChildren(make("p", { class: "text", dir: "auto" }, make("span", { class: "given" }, prompt.value), written));
      const body = { model, prompt: prompt.value, ...values() };
      const text = document.createTextNode("");
      written.append(text);
      return write("v1/completions", body, (choice) => choice.text, (piece) => text.appendData(piece), signal);
    },
  });
}

/** Returns the view for conversations. */
export function chatView(model) {
  const system = textArea({ rows: 2 });
  const message = textArea({ required: true, rows: 3 });
  const [settings, values] = makeSettings([labelled("System message", system, "Of the next conversation; empty for none.")]);
  const list = make("ol", { class: "conversation", "aria-label": "Conversation" });
  const anew = make("button", { type: "button" }, "New conversation");
  let messages = [];
  anew.addEventListener("click", () => {
    stop();
    messages = [];
    list.replaceChildren();
    message.focus();
  });
  const said = (role, content) => {
    const text = make(role === "assistant" ? "div" : "p", { class: "text", dir: "auto" }, content);
    list.append(make("li", { class: role }, make("strong", {}, ROLES[role]), text));
    return text;
  };
  const run = async (place, signal) => {
    if (!messages.length && system.value) {
      messages.push({ role: "system", content: system.value });
      said("system", system.value);
    }
    const mine = messages;
    const asked = { role: "user", content: message.value };
    const shown = list.children.length;
    said("user", asked.content);
    message.value = "";
    const shownAnswer = said("assistant", "");
    let answer = "";
    const show = (piece) => {
      answer += piece;
      shownAnswer.replaceChildren(...markdown(answer));
    };
    const body = { model, messages: [...mine, asked], ...values() };
    try {
      return await write("v1/chat/completions", body, (choice) => choice.delta.content, show, signal);
    } catch (error) {
      if (!answer && mine === messages) {
        // nothing was said: the message can be sent again
        while (list.children.length > shown) list.lastChild.remove();
        message.value ||= asked.content;
      }
      throw error;
    } finally {
      if (answer) {
        mine.push(asked, { role: "assistant", content: answer });
        // browsers have it on pages of this machine and on those over TLS
        if (navigator.clipboard) shownAnswer.after(copyButton(answer));
      }
    }
  };
  const view = makeView({ parts: [labelled("Your message", message), settings], name: "Send", run, place: list, more: [anew] });
  view.prepend(list);
  return view;
}

function copyButton(text) {
  const button = make("button", { type: "button", class: "copy" }, "Copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    announce("The answer is copied.");
  });
  return button;
}

async function write(path, body, textOf, show, signal) {
  let reason = "", usage = null, first = null, last = null;
  for await (const event of events(path, { ...body, stream: true, stream_options: { include_usage: true } }, signal)) {
    usage = event.usage ?? usage;
    for (const choice of event.choices) {
      const piece = textOf(choice) ?? "";
      last = performance.now();
      first ??= last;
      if (piece) show(piece);
      announcePiece(piece);
      reason = choice.finish_reason ?? reason;
    }
  }
  const seconds = (last - first) / 1000;
  // from the first piece on: before, the prompt is read
  const speed = seconds > 0 ? `, ${(usage.completion_tokens / seconds).toFixed(1)} a second` : "";
  return `${REASONS[reason] ?? reason} ${usage.prompt_tokens} tokens read, ${usage.completion_tokens} written${speed}.`;
}

/** Returns the view of a model that makes a text of a text: translations, summaries. */
export function textToTextView(model, signatures) {
  const source = textArea({ required: true });
  const [settings, values] = makeSettings();
  const run = async (place, signal) => {
    const set = values();
    let texts;
    if (Object.keys(set).length) {
      const answer = await post("v1/completions", { model, prompt: source.value, ...set }, signal);
      texts = answer.choices.map((choice) => choice.text);
    } else {
      const outputs = Object.keys(signatures.serving_default.outputs);
      const answer = await predict(model, "serving_default", { texts: [source.value] }, outputs, signal);
      texts = [answer.texts[0]].flat();
    }
    place.replaceChildren(...texts.map((text) => make("p", { class: "text written", dir: "auto" }, text)));
    return texts.length > 1 ? `${texts.length} texts: ${texts.map(isolated).join("; ")}` : texts[0] ? `Written: ${isolated(texts[0])}` : "The text is empty.";
  };
  const parts = [labelled("Text", source), ...(signatures.generate ? [settings] : [])];
  return makeView({ parts, name: "Write", run });
}
