// Markdown as models write it, made of elements: nothing in a text is read as HTML.

import { make } from "./elements.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)\s*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}>\s?(.*)$/;
// code first: nothing in it is marked
const INLINE = /(`+)(?<code>[^`](?:.*?[^`])?)\1(?!`)|\*\*(?<strong>[^\s*](?:.*?[^\s*])?)\*\*|(?<![*\w])\*(?<star>[^\s*](?:[^*]*?[^\s*])?)\*(?![*\w])|(?<![_\w])_(?<line>[^\s_](?:[^_]*?[^\s_])?)_(?![_\w])|\[(?<name>[^\[\]]+)\]\((?<address>https?:\/\/[^\s()]+)\)/su;

/** Returns the elements of a text, which may not have come to its end. */
export function markdown(text) {
  return blocks(text.split("\n"));
}

function blocks(lines) {
  const found = [];
  let words = [];
  const paragraph = () => {
    if (words.length) found.push(make("p", { dir: "auto" }, ...inline(words.join("\n"))));
    words = [];
  };
  for (let place = 0; place < lines.length; place += 1) {
    const line = lines[place];
    const fence = FENCE.exec(line), heading = HEADING.exec(line);
    if (fence) {
      paragraph();
      const code = [];
      for (place += 1; place < lines.length && lines[place].trim() !== fence[1]; place += 1) code.push(lines[place]);
      found.push(make("pre", { dir: "ltr", tabindex: "0" }, make("code", {}, code.join("\n"))));
    } else if (heading) {
      paragraph();
      // the page has the first levels
      found.push(make(`h${Math.min(heading[1].length + 2, 6)}`, { dir: "auto" }, ...inline(heading[2])));
    } else if (QUOTE.test(line)) {
      paragraph();
      const quoted = [];
      for (; place < lines.length && QUOTE.test(lines[place]); place += 1) quoted.push(QUOTE.exec(lines[place])[1]);
      place -= 1;
      found.push(make("blockquote", {}, ...blocks(quoted)));
    } else if (ITEM.test(line)) {
      paragraph();
      const part = [];
      // empty lines between items, and what is indented, belong to the list
      for (; place < lines.length && (ITEM.test(lines[place]) || /^\s/.test(lines[place])
        || (!lines[place].trim() && place + 1 < lines.length && ITEM.test(lines[place + 1]))); place += 1) part.push(lines[place]);
      place -= 1;
      found.push(list(part));
    } else if (line.trim()) words.push(line);
    else paragraph();
  }
  paragraph();
  return found;
}

function list(lines) {
  const [, indent, sign] = ITEM.exec(lines[0]);
  const items = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= indent.length) items.push([item[3]]);
    else items.at(-1).push(line.slice(Math.min(indent.length + sign.length + 1, line.length - line.trimStart().length)));
  }
  const isOrdered = /\d/.test(sign);
  const made = items.map(([first, ...rest]) => {
    const inside = rest.some((line) => line.trim()) ? blocks(rest) : [];
    return make("li", { dir: "auto" }, ...inline(first), ...inside);
  });
  return make(isOrdered ? "ol" : "ul", isOrdered ? { start: String(parseInt(sign, 10)) } : {}, ...made);
}

function inline(text) {
  const parts = [];
  for (let found = INLINE.exec(text); found; found = INLINE.exec(text)) {
    if (found.index) parts.push(text.slice(0, found.index));
    parts.push(marked(found.groups));
    text = text.slice(found.index + found[0].length);
  }
  if (text) parts.push(text);
  return parts;
}

function marked({ code, strong, star, line, name, address }) {
  return code !== undefined ? make("code", {}, code)
    : strong !== undefined ? make("strong", {}, ...inline(strong))
    : name !== undefined ? make("a", { href: address, rel: "noopener noreferrer", target: "_blank" }, ...inline(name))
    : make("em", {}, ...inline(star ?? line));
}
