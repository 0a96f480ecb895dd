// Events, decisions, lineage, pins, sharing, clients, streams and hosts, as tabs.

import { get } from "./api.js";
import { LineageGraph } from "./lineage.js";
import { age, bytes, element, number, table, time } from "./text.js";

const byId = (id) => document.getElementById(id);
const TABS = ["events", "decisions", "lineage", "pins", "sharing", "clients", "streams", "hosts"];
const KEPT_EVENTS = 500;

export class Activity {
  constructor(open) {
    this.open = open;
    this.tab = "events";
    this.events = [];
    this.overview = null;
    this.graph = new LineageGraph(open, () => this.show(true));
    TABS.forEach((name, index) => {
      const tab = byId(`tab-${name}`);
      tab.addEventListener("click", () => this.choose(name));
      tab.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (step) this.choose(TABS[(index + step + TABS.length) % TABS.length], true);
      });
    });
  }

  choose(name, focus = false) {
    this.tab = name;
    for (const each of TABS) {
      byId(`tab-${each}`).setAttribute("aria-selected", String(each === name));
      byId(`tab-${each}`).tabIndex = each === name ? 0 : -1;
    }
    byId("panel").setAttribute("aria-labelledby", `tab-${name}`);
    if (focus) byId(`tab-${name}`).focus();
    return this.show();
  }

  happened(event) {
    if (this.events.some((each) => each.number === event.number)) return;
    this.events.unshift(event);
    this.events.length = Math.min(this.events.length, KEPT_EVENTS);
    if (this.tab === "events") this.show();
  }

  async show(anyway = false) {
    const name = this.tab;
    let content;
    try {
      content = await this[name === "events" ? "happenings" : name]();
    } catch (error) {
      content = [element("p", { class: "alert" }, error.message)];
    }
    if (name !== this.tab) return;
    const focused = byId("panel").contains(document.activeElement) && document.activeElement !== byId("panel");
    if (!focused || anyway) byId("panel").replaceChildren(...content);
  }

  async happenings() {
    const rows = this.events.map((event) => [
      time(event.at), element("span", event.alert ? { class: "alert" } : {}, event.kind), event.text,
    ]);
    return withNote(rows, ["When", "What", "How much"], [], "nothing has happened since this page's server was started", true);
  }

  async decisions() {
    const { decisions, folder, problem } = await get("/api/policy");
    const rows = decisions.map((each) => [
      time(each.time), element("span", {}, each.kind.replaceAll("_", " ")),
      [each.pipeline, each.task].filter(Boolean).join("/"), each.key || each.object,
      each.seconds === null ? "" : `${each.seconds.toFixed(3)} s`, each.nbytes === null ? "" : bytes(each.nbytes),
      each.rule, each.text,
    ]);
    const header = ["When", "What", "Task", "Object", "Took", "Bytes", "By rule", "Why, with its numbers"];
    const alert = problem ? [element("p", { class: "alert" }, problem)] : [];
    return [...alert, ...withNote(rows, header, [4, 5], `no failover policy has written to ${folder}`, true)];
  }

  lineage() {
    return this.graph.draw(this.overview?.listed_at);
  }

  name(row) {
    return element("button", { type: "button", class: "name", on: { click: () => this.open(row.id) } }, row.names || row.id);
  }

  async pins() {
    const { pins, complete } = await get("/api/pins");
    const rows = pins.map((pin) => [
      this.name(pin), bytes(pin.nbytes), `${pin.label} (${pin.pid})`, String(pin.pins),
      pin.or_earlier ? `${time(pin.since)} or earlier` : time(pin.since), age(pin.since),
    ]);
    return withNote(rows, ["Object", "Bytes", "Process", "Pins", "Since", "For"], [1, 3], "nobody pins an object", complete);
  }

  async sharing() {
    const { objects, complete } = await get("/api/largest");
    const rows = objects.filter((each) => each.shared_bytes || each.referenced_bytes).map((each) => [
      this.name(each), bytes(each.nbytes), bytes(each.own_bytes), bytes(each.shared_bytes), bytes(each.referenced_bytes),
      element("span", {}, ...each.parents.map((id) => this.name({ id, names: `${id.slice(0, 12)}… ` }))),
    ]);
    return withNote(rows, ["Object", "Bytes", "Own", "Of these shared", "From older ones", "Older ones"], [1, 2, 3, 4], "no object shares memory with another", complete);
  }

  async clients() {
    const clients = this.overview?.clients || [];
    const rows = clients.map((each) => [
      String(each.pid), each.label, number(each.pins), bytes(each.leased_bytes),
      each.connected ? `${Math.floor(each.connected_seconds)} s` : "gone; what it held is kept",
    ]);
    return withNote(rows, ["Process", "Client", "Pins", "Leased", "Connected for"], [0, 2, 3], "no client is connected", true);
  }

  async streams() {
    const rows = (this.overview?.streams || []).map((each) => [
      each.name, each.session, each.state, `${each.chunks} of ${each.capacity}`, number(each.appended),
      `${each.writers_open} open, ${each.writers_closed} of ${each.writers} closed`,
      each.groups.map((group) => `${group.name} ${group.readers}`).join(", "), each.failure,
    ]);
    return withNote(rows, ["Stream", "Session", "State", "Chunks", "Written", "Writers", "Readers", "Failure"], [4], "there are no streams", true);
  }

  async hosts() {
    const { configured, hosts, error } = await get("/api/cluster");
    if (!configured) return [element("p", { class: "soft" }, "No cluster is configured: see --cluster.")];
    const own = this.overview?.store?.instance;
    const rows = hosts.map((each) => [
      each.host, each.id === own ? `${each.id} (this one)` : each.id, each.addresses.join(", "),
      each.live ? "live" : `lost since ${time(each.lost_since)}`,
    ]);
    const problem = error ? [element("p", { class: "alert" }, error)] : [];
    return [...problem, ...withNote(rows, ["Host", "Store", "Addresses", "State"], [], "no store has joined the cluster", true)];
  }
}

function withNote(rows, header, numbers, nothing, complete) {
  const note = complete ? [] : [element("p", { class: "soft" }, "Only the largest objects were asked for this.")];
  return rows.length ? [table(header, rows, numbers), ...note] : [element("p", { class: "soft" }, `${nothing}.`), ...note];
}
