// The lineage of a session: objects as boxes, from left to right, with lines from what each was made from, and dashed
// ones from what it shares memory with. The boxes are buttons; the lines are for the eye, and named in the boxes' labels.

import { get } from "./api.js";
import { bytes, element, visible } from "./text.js";

const BOX = { width: 190, height: 62, across: 70, down: 14, margin: 10 };
const SVG = "http://www.w3.org/2000/svg";

export class LineageGraph {
  constructor(open, redraw) {
    this.open = open;
    this.redraw = redraw;
    this.place = "";
    this.drawnFor = null;
    this.drawn = [];
  }

  // The graph, drawn anew if the objects were listed since, or another session was chosen.
  async draw(listedAt) {
    const wanted = `${listedAt} ${this.place}`;
    if (this.drawnFor === wanted) return this.drawn;
    const graph = await get("/api/lineage", { place: this.place });
    this.drawn = this.build(graph);
    this.drawnFor = wanted;
    return this.drawn;
  }

  build({ places, place, nodes, edges, unreadable, truncated }) {
    if (!nodes.length) {
      return [element("p", { class: "soft" }, "No lineage is recorded: tasks record it while a failover policy is set. Objects that share memory appear here, too.")];
    }
    const choice = element("select", { "aria-label": "Session", on: { change: (event) => this.choose(event.target.value) } },
      ...places.map((each) => element("option", { value: each, selected: each === place }, each)));
    const notes = [
      truncated && "Only the newest objects are drawn.",
      unreadable && `${unreadable} records cannot be read by this version.`,
    ].filter(Boolean);
    return [
      element("p", { class: "soft" }, "Session ", choice, " Solid: read by the task that made the object. Dashed: shares its memory. ", ...notes),
      this.canvas(nodes, edges),
    ];
  }

  choose(place) {
    this.place = place;
    this.redraw();
  }

  canvas(nodes, edges) {
    const rows = [];
    const spot = new Map();
    for (const node of nodes) {
      rows[node.level] = (rows[node.level] ?? -1) + 1;
      const x = BOX.margin + node.level * (BOX.width + BOX.across);
      spot.set(node.id, { x, y: BOX.margin + rows[node.level] * (BOX.height + BOX.down) });
    }
    const width = 2 * BOX.margin + rows.length * (BOX.width + BOX.across) - BOX.across;
    const height = 2 * BOX.margin + (Math.max(...rows.map((each) => each ?? 0)) + 1) * (BOX.height + BOX.down) - BOX.down;
    const lines = document.createElementNS(SVG, "svg");
    lines.setAttribute("width", width);
    lines.setAttribute("height", height);
    lines.setAttribute("aria-hidden", "true");
    for (const edge of edges) lines.append(line(spot.get(edge.source), spot.get(edge.target), edge.kind));
    const canvas = element("div", { class: "lineage" }, lines, ...nodes.map((node) => this.box(node, spot.get(node.id), nodes, edges)));
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    return canvas;
  }

  box(node, { x, y }, nodes, edges) {
    const label = new Map(nodes.map((each) => [each.id, each.label]));
    const from = (kind) => edges.filter((edge) => edge.target === node.id && edge.kind === kind).map((edge) => label.get(edge.source));
    const made = node.task ? `${node.task}${node.seconds === null ? "" : `, ${node.seconds.toFixed(2)} s`}` : "task not recorded";
    const size = node.nbytes === null ? "" : bytes(node.nbytes);
    const shared = node.shared_bytes ? `, ${bytes(node.shared_bytes)} shared` : "";
    const state = node.state === "sealed" ? "" : `, ${node.state}`;
    const inputs = from("input");
    const sources = from("shared");
    const spoken = [node.label, made, `${size}${shared}${state}`, inputs.length && `made from ${inputs.join(", ")}`,
      sources.length && `shares memory with ${sources.join(", ")}`].filter(Boolean).join("; ");
    const box = element("button", { type: "button", class: `box ${node.state}`, "aria-label": visible(spoken), title: visible(spoken),
      "data-id": node.id, disabled: node.state === "gone", on: { click: () => this.open(node.id) } },
    element("b", {}, node.label), element("span", {}, made), element("span", {}, `${size}${shared}${state}`));
    box.style.left = `${x}px`;
    box.style.top = `${y}px`;
    box.style.width = `${BOX.width}px`;
    box.style.height = `${BOX.height}px`;
    return box;
  }
}

function line(source, target, kind) {
  const drawn = document.createElementNS(SVG, "path");
  const [x1, y1] = [source.x + BOX.width, source.y + BOX.height / 2];
  const [x2, y2] = [target.x, target.y + BOX.height / 2];
  const bend = Math.max(30, Math.abs(x2 - x1) / 2);
  drawn.setAttribute("d", `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`);
  drawn.setAttribute("class", kind);
  return drawn;
}
