// Delete, pin, evict and save: asked for with a confirmation, then posted.

import { post } from "./api.js";
import { element, number } from "./text.js";

const byId = (id) => document.getElementById(id);
const LISTED = 10;
const QUESTIONS = {
  delete: ["Delete", "No reader can get them any more. Readers that have them keep them until they let go."],
  pin: ["Pin", "They stay in memory until you unpin them or entrepot ui ends."],
  unpin: ["Unpin", "Pins that were taken here are released."],
  evict: ["Evict", "They move from memory to disk; a get reloads them."],
  save: ["Save", "A checkpoint is written."],
};

export function bindActions(table, done) {
  for (const button of document.querySelectorAll("[data-action]")) {
    button.addEventListener("click", () => ask(button.dataset.action, table, done));
  }
}

async function ask(action, table, done) {
  const chosen = [...table.selected];
  const [title, consequence] = QUESTIONS[action];
  byId("confirm-title").textContent = `${title} ${number(chosen.length)} ${chosen.length === 1 ? "object" : "objects"}?`;
  byId("confirm-text").textContent = consequence;
  const more = chosen.length > LISTED ? [element("li", {}, `and ${number(chosen.length - LISTED)} more`)] : [];
  byId("confirm-list").replaceChildren(...chosen.slice(0, LISTED).map(([, label]) => element("li", {}, label)), ...more);
  byId("confirm-save").hidden = action !== "save";
  byId("confirm-yes").textContent = title;
  byId("confirm").returnValue = "cancel";
  byId("confirm").showModal();
  await new Promise((resolve) => byId("confirm").addEventListener("close", resolve, { once: true }));
  if (byId("confirm").returnValue !== "yes") return;
  const options = action === "save" ? { url: byId("save-url").value, format: byId("save-format").value } : {};
  byId("selected").textContent = "working…";
  try {
    const result = await post(`/api/actions/${action}`, { ids: chosen.map(([id]) => id), ...options });
    const failures = Object.values(result.failed);
    table.clearSelection();
    done(failures.length ? `${title}: ${number(failures.length)} failed: ${failures[0]}` : `${title}: ${number(result.done.length)} done. ${result.note}`);
  } catch (error) {
    table.showSelected();
    done(`${title} failed: ${error.message}`);
  }
}
