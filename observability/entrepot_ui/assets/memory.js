// The capacity as a bar, and the objects as a map of groups.

import { bytes, element, number, visible } from "./text.js";

const byId = (id) => document.getElementById(id);

export function showMemory(overview, search) {
  const status = overview.status;
  byId("capacity").replaceChildren();
  byId("legend").replaceChildren();
  if (status) {
    for (const part of overview.memory) {
      const piece = element("div", { class: `part-${part.key}`, title: `${part.label}: ${bytes(part.nbytes)}` });
      piece.style.flexGrow = part.nbytes / status.capacity_bytes;
      byId("capacity").append(piece);
    }
    const spilled = { key: "spilled", label: "spilled, on disk only", nbytes: status.spilled_bytes };
    for (const part of [...overview.memory, spilled]) {
      const swatch = element("span", { class: `swatch part-${part.key}` });
      byId("legend").append(element("li", {}, swatch, `${part.label} `, element("strong", {}, bytes(part.nbytes))));
    }
  }
  const shared = overview.sharing;
  const which = shared.complete ? "Payload" : `Payload of the ${number(shared.objects)} largest objects`;
  byId("sharing").textContent =
    `${which}: ${bytes(shared.own_bytes)} of one object only, ${bytes(shared.shared_bytes)} shared by several, ` +
    `which saves ${bytes(shared.referenced_bytes)} of copies.`;
  showGroups(overview.groups, search);
}

function showGroups(groups, search) {
  const map = byId("map");
  const focused = document.activeElement?.dataset?.group;
  map.replaceChildren();
  const total = groups.reduce((sum, group) => sum + Math.max(group.nbytes, 1), 0);
  for (const { item, x, y, w, h } of squarify(groups, total)) {
    const text = `${visible(item.name)}: ${bytes(item.nbytes)}, ${number(item.objects)} objects`;
    const spilled = item.spilled_bytes ? `, ${bytes(item.spilled_bytes)} spilled` : "";
    const attributes = { type: "button", title: text + spilled, "aria-label": text + spilled, class: `hue-${placeOf(item.name)}${item.spilled_bytes ? " spilled" : ""}` };
    const box = element("button", attributes, item.name, " ", element("span", { class: "soft" }, bytes(item.nbytes)));
    box.dataset.group = item.name;
    box.style.left = `${x * 100}%`;
    box.style.top = `${y * 100}%`;
    box.style.width = `${w * 100}%`;
    box.style.height = `${h * 100}%`;
    box.disabled = Boolean(item.others);
    box.addEventListener("click", () => search(item.name.replace(/^\(default\)$|^\(unknown\)$/, "").replace(": ", " ")));
    map.append(box);
    if (focused === item.name) box.focus();
  }
}

// One of a few colours, the same for a name at each refresh.
function placeOf(name) {
  let sum = 0;
  for (const character of name) sum = (sum * 31 + character.codePointAt(0)) % 6007;
  return sum % 6;
}

// Squarified treemap in the unit square, which is drawn about five times as wide as high.
function squarify(groups, total) {
  const ASPECT = 5;
  const placed = [];
  let x = 0;
  let y = 0;
  let w = ASPECT;
  let h = 1;
  let rest = groups.map((item) => ({ item, area: (Math.max(item.nbytes, 1) / total) * ASPECT }));
  while (rest.length) {
    const side = Math.min(w, h);
    let row = [];
    let sum = 0;
    let worst = Infinity;
    for (const entry of rest) {
      const next = sum + entry.area;
      const areas = [...row, entry].map((each) => each.area);
      const ratio = Math.max((side ** 2 * Math.max(...areas)) / next ** 2, next ** 2 / (side ** 2 * Math.min(...areas)));
      if (ratio > worst) break;
      row.push(entry);
      sum = next;
      worst = ratio;
    }
    const depth = sum / side;
    let at = 0;
    for (const { item, area } of row) {
      const length = area / depth;
      const box = w >= h ? { x, y: y + at, w: depth, h: length } : { x: x + at, y, w: length, h: depth };
      placed.push({ item, x: box.x / ASPECT, y: box.y, w: box.w / ASPECT, h: box.h });
      at += length;
    }
    if (w >= h) {
      x += depth;
      w -= depth;
    } else {
      y += depth;
      h -= depth;
    }
    rest = rest.slice(row.length);
  }
  return placed;
}
