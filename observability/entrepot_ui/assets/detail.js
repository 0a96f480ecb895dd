// One object in a dialog: its metadata, schema, first rows and pins.

import { get } from "./api.js";
import { bytes, element, number, table, time, visible } from "./text.js";

const byId = (id) => document.getElementById(id);
let shown = "";

export async function showDetail(oid) {
  shown = oid;
  byId("detail-title").textContent = "Object";
  byId("detail-body").replaceChildren(element("p", {}, "reading…"));
  if (!byId("detail").open) byId("detail").showModal();
  try {
    const info = await get(`/api/objects/${oid}`);
    if (shown !== oid) return;
    byId("detail-title").textContent = visible(info.names.join(", ") || oid);
    const rows = element("div", { id: "preview" }, element("p", {}, "reading its first rows…"));
    byId("detail-body").replaceChildren(facts(info), element("h3", {}, "First rows"), rows, ...pins(info), ...sources(info), ...eviction(info));
    await showRows(oid, rows, "0");
  } catch (error) {
    if (shown === oid) byId("detail-body").replaceChildren(element("p", { class: "alert" }, error.message));
  }
}

async function showRows(oid, place, load) {
  try {
    const preview = await get(`/api/objects/${oid}/preview`, { rows: 20, load });
    const parts = [];
    if (preview.text) parts.push(multiline(preview.text));
    if (preview.columns) {
      const header = preview.columns.map((column) => `${column.name} ${column.type}`.trim());
      const grid = table(header, preview.rows);
      parts.push(element("div", { class: "scroll", role: "region", "aria-label": "First rows", tabindex: "0" }, grid));
    }
    if (preview.note) parts.push(element("p", { class: "soft" }, preview.note));
    if (preview.loadable) {
      parts.push(element("button", { type: "button", on: { click: () => showRows(oid, place, "1") } }, "Load it and show"));
    }
    place.replaceChildren(...parts);
  } catch (error) {
    place.replaceChildren(element("p", { class: "alert" }, error.message));
  }
}

function multiline(text) {
  const made = document.createElement("pre");
  made.textContent = visible(text, true);
  return made;
}

function facts(info) {
  const lines = [
    ["ID", info.id],
    ["Names", info.names.join(", ") || "none"],
    ["Type", info.type],
    ["State", `${info.state}${info.why ? `: ${info.why}` : ""}`],
    ["Bytes", `${bytes(info.nbytes)}: own ${bytes(info.own_bytes)}, of these shared ${bytes(info.shared_bytes)}; from older objects ${bytes(info.referenced_bytes)}`],
    ["Session", `${info.scope}: ${info.session || "(the scope's own)"}`],
    ["Locality set", info.locality_set || "(default)"],
    ["Created", time(info.created)],
    ["Generation", String(info.generation)],
    ["Priority", `${info.priority}${info.kept ? ", kept in memory" : ""}`],
  ];
  if (info.consumers) lines.push(["Consumers", `${info.consumers_left} of ${info.consumers} left`]);
  if (info.collection) lines.push(["Collection", `${number(info.collection.members)} members, ${bytes(info.collection.nbytes)}`]);
  if (info.lost_count) lines.push(["Lost", `${info.lost_count} objects that it refers to`]);
  return list(lines);
}

function eviction(info) {
  const terms = Object.entries(info.eviction || {});
  if (!terms.length) return [];
  const lines = terms.map(([name, value]) => [name.replaceAll("_", " "), String(value)]);
  return [element("details", {}, element("summary", {}, "Terms of its eviction rank"), list(lines))];
}

function list(lines) {
  return element("dl", {}, ...lines.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

function pins(info) {
  if (!info.pinned_by.length) return [];
  const since = new Map(info.pins_seen.map((pin) => [pin.pid, pin]));
  const rows = info.pinned_by.map((holder) => {
    const seen = since.get(holder.pid);
    const when = seen ? (seen.or_earlier ? `${time(seen.since)} or earlier` : time(seen.since)) : "just now";
    return [String(holder.pid), holder.label, String(holder.pins), when];
  });
  return [element("h3", {}, "Pinned by"), table(["Process", "Client", "Pins", "Since"], rows, [0, 2])];
}

function sources(info) {
  if (!info.parents.length) return [];
  const rows = info.parents.map((parent) => {
    const open = parent.id ? element("button", { type: "button", class: "name mono", on: { click: () => showDetail(parent.id) } }, parent.id) : "not determined";
    return [open, bytes(parent.nbytes)];
  });
  return [element("h3", {}, "Shares memory with"), table(["Older object", "Bytes"], rows, [1])];
}
