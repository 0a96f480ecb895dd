// Text for people. Everything reaches the document as text, never as markup.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(count) {
  let size = count;
  let unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${count} B` : `${size.toFixed(1)} ${UNITS[unit]}`;
}

export function number(count) {
  return count.toLocaleString("en");
}

export function age(since) {
  const seconds = Math.max(0, Math.floor(Date.now() / 1000 - since));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

export function time(at) {
  return new Date(at * 1000).toLocaleString();
}

// Control characters (such as a terminal's escapes) and those that change the direction of text, made visible.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

export function visible(text, keepLines = false) {
  return String(text).replace(HIDDEN, (character) => {
    if (keepLines && (character === "\n" || character === "\t")) return character;
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}

// Creates an element; children are elements or text.
export function element(name, attributes = {}, ...children) {
  const created = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") {
      for (const [event, handler] of Object.entries(value)) created.addEventListener(event, handler);
    } else if (value === true) {
      created.setAttribute(key, "");
    } else if (value !== false && value !== null && value !== undefined) {
      created.setAttribute(key, value);
    }
  }
  for (const child of children) {
    created.append(child instanceof Node ? child : visible(child));
  }
  return created;
}

// A table of cells that are text or elements; `numbers` are the columns that are aligned to the right.
export function table(header, rows, numbers = []) {
  const style = (column) => (numbers.includes(column) ? { class: "number" } : {});
  return element(
    "table",
    {},
    element("thead", {}, element("tr", {}, ...header.map((text, i) => element("th", { scope: "col", ...style(i) }, text)))),
    element(
      "tbody",
      {},
      ...rows.map((row) => element("tr", {}, ...row.map((cell, i) => element("td", style(i), cell)))),
    ),
  );
}
