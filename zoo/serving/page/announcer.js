// What screen readers say of texts that are being written: whole words, and not with every token.

const PAUSE = 1200; // milliseconds between two announcements
const segmenter = new Intl.Segmenter(undefined, { granularity: "word" }); // in scripts without spaces, too
const region = document.getElementById("announcer");

let waiting = "";
let timer = null;

/** Adds a piece of a text. */
export function announcePiece(piece) {
  waiting += piece;
  timer ??= setTimeout(sayWords, PAUSE);
}

/** Says what is left, and how it ended. */
export function announce(message) {
  const text = waiting + (waiting && " ") + message;
  begin();
  say(text);
}

/** Forgets what was said before. */
export function begin() {
  clearTimeout(timer);
  timer = null;
  waiting = "";
  region.replaceChildren();
}

function sayWords() {
  timer = null;
  const end = [...segmenter.segment(waiting)].at(-1)?.index ?? 0;
  const words = waiting.slice(0, end);
  if (words.trim()) {
    say(words);
    waiting = waiting.slice(end);
  }
  if (waiting.trim()) timer = setTimeout(sayWords, PAUSE);
}

function say(text) {
  const said = document.createElement("span");
  said.textContent = text;
  region.append(said);
}
