// The table of objects. Search, order and pages are the server's; this shows one page.

import { get } from "./api.js";
import { age, bytes, element, number, time } from "./text.js";

const LIMIT = 100;
const COLUMNS = [
  ["names", "Name", "ascending"],
  ["nbytes", "Bytes", "descending"],
  ["type", "Type", "ascending"],
  ["created", "Age", "descending"],
  ["state", "State", "ascending"],
  ["locality_set", "Set", "ascending"],
  ["session", "Session", "ascending"],
];
const byId = (id) => document.getElementById(id);

export class ObjectTable {
  constructor(open) {
    this.open = open;
    this.query = { search: "", sort: "nbytes", descending: "1", offset: 0, limit: LIMIT };
    this.selected = new Map(); // names or IDs by ID
    this.rows = [];
    this.loads = 0;
    this.shownFor = null; // listed_at of what is shown
    byId("search").addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.search(byId("search").value), 120);
    });
    byId("previous").addEventListener("click", () => this.turn(-1));
    byId("next").addEventListener("click", () => this.turn(1));
    byId("objects").addEventListener("keydown", (event) => this.key(event));
    this.showHeader();
  }

  search(text) {
    byId("search").value = text;
    this.query.search = text;
    this.query.offset = 0;
    return this.load();
  }

  sort(key, first) {
    const again = this.query.sort === key;
    this.query.descending = (again ? this.query.descending === "0" : first === "descending") ? "1" : "0";
    this.query.sort = key;
    this.query.offset = 0;
    this.showHeader();
    byId("objects").querySelector(`button[data-sort="${key}"]`).focus();
    return this.load();
  }

  turn(pages) {
    const offset = this.query.offset + pages * LIMIT;
    if (offset < 0 || (pages > 0 && offset >= this.matched)) return Promise.resolve();
    this.query.offset = offset;
    return this.load();
  }

  async load() {
    const current = ++this.loads;
    const page = await get("/api/objects", this.query);
    if (current !== this.loads) return; // a later question was asked meanwhile
    if (this.query.offset > 0 && this.query.offset >= page.matched) {
      this.query.offset = Math.max(0, Math.ceil(page.matched / LIMIT) - 1) * LIMIT;
      await this.load();
      return;
    }
    this.matched = page.matched;
    this.shownFor = page.taken_at;
    this.rows = page.rows;
    this.show(page);
  }

  showHeader() {
    const cells = COLUMNS.map(([key, title, first]) => {
      const sorted = this.query.sort === key;
      const direction = this.query.descending === "1" ? "descending" : "ascending";
      const mark = sorted ? (direction === "descending" ? " ▼" : " ▲") : "";
      const button = element("button", { type: "button", "data-sort": key, on: { click: () => this.sort(key, first) } }, title + mark);
      return element("th", { scope: "col", "aria-sort": sorted ? direction : "none", class: key === "nbytes" ? "number" : "" }, button);
    });
    const pick = element("th", { scope: "col" }, "Select");
    byId("objects").tHead.replaceChildren(element("tr", {}, pick, ...cells));
  }

  show(page) {
    const focus = document.activeElement;
    const kept = byId("objects").contains(focus) ? [focus.closest("tr")?.dataset.id, focus.type] : [];
    const pinned = new Set(page.pinned_here);
    byId("objects").tBodies[0].replaceChildren(...page.rows.map((row) => this.row(row, pinned)));
    if (kept[0]) {
      const again = byId("objects").querySelector(`tr[data-id="${kept[0]}"] ${kept[1] === "checkbox" ? "input" : "button"}`);
      again?.focus();
    }
    const last = Math.min(page.offset + LIMIT, page.matched);
    const shown = page.matched ? `${number(page.offset + 1)} to ${number(last)}` : "none";
    byId("page").textContent = shown;
    const size = page.matched_bytes === null ? "" : `, ${bytes(page.matched_bytes)}`;
    const cut = page.truncated ? "; there are more, which are not listed" : "";
    byId("matched").textContent = `${number(page.matched)} of ${number(page.total)}${size}${cut}`;
    byId("previous").disabled = page.offset === 0;
    byId("next").disabled = last >= page.matched;
    this.showSelected();
  }

  row(row, pinned) {
    const label = row.names || row.id;
    const tick = element("input", { type: "checkbox", "aria-label": `select ${label}`, on: { change: () => this.pick(row) } });
    tick.checked = this.selected.has(row.id);
    const name = element("button", { type: "button", class: row.names ? "name" : "name mono", on: { click: () => this.open(row.id) } }, label);
    const marks = [pinned.has(row.id) ? "pinned here" : "", row.kept ? "kept" : ""].filter(Boolean).join(", ");
    const cells = [tick, name, bytes(row.nbytes), row.type, age(row.created), marks ? `${row.state}, ${marks}` : row.state, row.locality_set];
    cells.push(row.session ? `${row.scope}: ${row.session}` : row.scope);
    const made = element("tr", { class: tick.checked ? "picked" : "" }, ...cells.map((cell, i) => element("td", i === 2 ? { class: "number" } : {}, cell)));
    made.cells[4].title = time(row.created);
    made.dataset.id = row.id;
    return made;
  }

  pick(row) {
    if (this.selected.has(row.id)) this.selected.delete(row.id);
    else this.selected.set(row.id, row.names || row.id);
    const shown = byId("objects").querySelector(`tr[data-id="${row.id}"]`);
    shown.classList.toggle("picked", this.selected.has(row.id));
    shown.querySelector("input").checked = this.selected.has(row.id);
    this.showSelected();
  }

  showSelected() {
    byId("selected").textContent = `${number(this.selected.size)} selected`;
    for (const button of document.querySelectorAll("[data-action]")) button.disabled = this.selected.size === 0;
  }

  clearSelection() {
    this.selected.clear();
    for (const shown of byId("objects").tBodies[0].rows) {
      shown.classList.remove("picked");
      shown.querySelector("input").checked = false;
    }
    this.showSelected();
  }

  key(event) {
    const shown = event.target.closest("tbody tr");
    if (!shown || event.ctrlKey || event.metaKey || event.altKey) return;
    const move = { ArrowDown: shown.nextElementSibling, ArrowUp: shown.previousElementSibling }[event.key];
    if (move) {
      move.querySelector("button").focus();
      event.preventDefault();
    } else if (event.key === "x") {
      const row = this.rows.find((each) => each.id === shown.dataset.id);
      if (row) this.pick(row);
    }
  }
}
