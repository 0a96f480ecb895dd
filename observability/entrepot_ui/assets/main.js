// Puts the parts together: logs in, listens to the server's events, and refreshes what is shown.

import { Activity } from "./activity.js";
import { get, logIn } from "./api.js";
import { bindActions } from "./actions.js";
import { showDetail } from "./detail.js";
import { showMemory } from "./memory.js";
import { ObjectTable } from "./objects.js";
import { age, element, visible } from "./text.js";

const byId = (id) => document.getElementById(id);
const THEMES = ["system", "light", "dark"];
let refreshing = false;
let message = "";

const table = new ObjectTable(showDetail);
const activity = new Activity(showDetail);

function showState(state, reason, answeredAt) {
  const place = byId("state");
  place.className = state === "live" ? "" : state;
  const when = answeredAt ? ` What is shown is from ${age(answeredAt)} ago.` : "";
  const text = state === "live" ? message : `The store does not answer: ${reason}.${when} It is asked again and again.`;
  if (place.textContent !== text) place.textContent = visible(text);
  document.body.dataset.state = state;
}

async function refresh() {
  if (refreshing) return;
  refreshing = true;
  const began = performance.now();
  try {
    const overview = await get("/api/overview", { by: byId("group-by").value || "session" });
    showState(overview.state, overview.reason, overview.answered_at);
    activity.overview = overview;
    if (!byId("group-by").options.length) {
      byId("group-by").append(...overview.groupings.map((name) => element("option", { value: name }, name.replace("_", " "))));
    }
    if (overview.store) {
      const { host, version, pid, instance } = overview.store;
      byId("store").textContent = visible(`store ${instance.slice(0, 12)} on ${host}, version ${version}, daemon ${pid}`);
    }
    showMemory(overview, (text) => table.search(text));
    if (overview.listed_at !== table.shownFor) await table.load();
    if (activity.tab !== "events") await activity.show();
  } catch (error) {
    if (error.status === 401) showState("lost", "the token is not valid (any more); open the link that entrepot ui printed", 0);
    else showState("lost", error.message, 0);
  } finally {
    refreshing = false;
    document.body.dataset.refreshMs = (performance.now() - began).toFixed(1);
    document.body.dataset.ready = "yes";
  }
}

function setTheme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  byId("theme").textContent = `Theme: ${name}`;
  localStorage.setItem("entrepot-theme", name);
}

function bindKeys() {
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox";
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape" && event.target === byId("search")) table.search("");
    if (typing) return;
    if (event.key === "/") {
      byId("search").focus();
      event.preventDefault();
    } else if (event.key === "?") byId("keys").showModal();
    else if (event.key === "n") table.turn(1);
    else if (event.key === "p") table.turn(-1);
  });
}

function listen() {
  const source = new EventSource("/api/events/stream");
  source.addEventListener("happened", (event) => activity.happened(JSON.parse(event.data)));
  source.addEventListener("tick", refresh);
  source.addEventListener("error", () => {
    showState("lost", "entrepot ui does not answer: is it still running?", 0);
    // A browser gives up after an answer that is no stream, such as from a server that was started anew.
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, 2000);
  });
}

async function start() {
  setTheme(THEMES.find((name) => name === localStorage.getItem("entrepot-theme")) || "system");
  byId("theme").addEventListener("click", () => {
    const current = localStorage.getItem("entrepot-theme") || "system";
    setTheme(THEMES[(THEMES.indexOf(current) + 1) % THEMES.length]);
  });
  byId("help").addEventListener("click", () => byId("keys").showModal());
  byId("group-by").addEventListener("change", refresh);
  window.addEventListener("unhandledrejection", (event) => {
    showState("lost", event.reason?.message || String(event.reason), 0);
  });
  bindKeys();
  bindActions(table, (text) => {
    message = text;
    refresh();
    table.load();
  });
  table.showSelected();
  try {
    await logIn();
  } catch (error) {
    document.body.dataset.ready = "refused";
    byId("state").className = "lost";
    byId("state").textContent = visible(error.message);
    return;
  }
  await activity.show();
  await refresh();
  listen();
}

start();
