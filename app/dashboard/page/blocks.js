// The KV pool as a field of cells, filled column by column: what is held, what is cached, what is free.

import { byId, colours, count, make, percent, say, surface, tip } from "./dom.js";

const STATES = [
  ["active", "active", "decode", "held by running requests"],
  ["reserved", "reserved", "reserved", "held for handoffs"],
  ["in_copy", "in copy", "copy", "being copied to the host"],
  ["cached", "cached", "cached", "kept for reuse, evicted when needed"],
  ["free", "free", "free", "empty"],
];

export class BlockMap {
  constructor() {
    this.canvas = byId("map");
    this.ranks = [];
    this.cells = [];
    this.canvas.addEventListener("pointermove", (event) => this.pick(event));
    this.canvas.addEventListener("pointerleave", () => tip(null));
    this.legend = new Map();
    for (const [key, name, colour, meaning] of STATES) {
      const value = make("dd");
      this.legend.set(key, value);
      byId("blocks-legend").append(make("div", { title: meaning }, make("i", { class: `c-${colour}` }), make("dt", { text: name }), value));
    }
  }

  /** `ranks`: [{ blocks: { total, active, … }, tiers }] */
  update(ranks) {
    this.ranks = ranks;
    const sum = (key) => ranks.reduce((total, rank) => total + (rank.blocks[key] ?? 0), 0);
    for (const [key] of STATES) {
      const value = sum(key);
      const node = this.legend.get(key);
      say(node, count(value));
      node.parentNode.hidden = !value && (key === "reserved" || key === "in_copy");
    }
    const total = sum("total");
    const held = total - sum("cached") - sum("free");
    say(byId("blocks-note"), `${count(held)} of ${count(total)} held${ranks.length > 1 ? ` on ${ranks.length} ranks` : ""}`);
    this.canvas.setAttribute("aria-label", `KV blocks: ${percent(total ? held / total : 0)} held`);
    const key = ranks.map((rank) => STATES.map(([state]) => rank.blocks[state] ?? 0).join()).join(";");
    if (key !== this.drawn) this.draw();
    this.drawn = key;
    this.tiers(ranks);
  }

  draw() {
    const { context, width, height } = surface(this.canvas, this.canvas.parentNode.clientHeight);
    if (!this.ranks.length || width < 10) return;
    const c = colours();
    const gap = 8;
    const each = (height - gap * (this.ranks.length - 1)) / this.ranks.length;
    this.areas = this.ranks.map((rank, index) => this.field(context, c, rank.blocks, index * (each + gap), width, each));
  }

  /** One rank. A cell stands for `per` blocks, as few as there is room for. */
  field(context, c, blocks, top, width, height) {
    const total = Math.max(1, blocks.total);
    // As large as lets every block have a cell of its own; where cells would get too small several share one.
    let rows = Math.max(1, Math.round(height / 18));
    while (rows * Math.floor((width * rows) / height) < total && height / (rows + 1) >= 4) rows += 1;
    const size = height / rows;
    const room = rows * Math.max(1, Math.floor(width / size));
    const per = Math.ceil(total / room);
    const used = Math.ceil(total / per);
    const columns = Math.ceil(used / rows);
    const step = width / columns;
    let cell = 0;
    let blocksBefore = 0;
    for (const [key, , colour] of STATES) {
      blocksBefore += blocks[key] ?? 0;
      // A state with any block shows at least one cell.
      const wanted = Math.max(Math.round(blocksBefore / per), (blocks[key] ?? 0) > 0 ? cell + 1 : cell);
      const end = key === "free" ? used : Math.min(used, wanted);
      context.fillStyle = c[colour];
      fillCells(context, cell, end, { rows, size, step, top });
      cell = end;
    }
    // Whole areas first and the gaps then: some hundred strokes instead of a thousand cells.
    const gap = size > 7 ? 1.5 : 1;
    for (let row = 1; row <= rows; row += 1) context.clearRect(0, top + row * size - gap, width, gap);
    for (let column = 1; column <= columns; column += 1) context.clearRect(column * step - gap, top, gap, height);
    return { top, height, rows, size, step, per, used, blocks };
  }

  pick(event) {
    const area = this.areas?.find((one) => event.offsetY >= one.top && event.offsetY < one.top + one.height);
    if (!area) return tip(null);
    const cell = Math.floor(event.offsetX / area.step) * area.rows + Math.floor((event.offsetY - area.top) / area.size);
    if (cell >= area.used) return tip(null);
    let before = 0;
    const found = STATES.find(([key]) => (before += area.blocks[key] ?? 0) > cell * area.per) ?? STATES.at(-1);
    const scale = area.per > 1 ? `\none cell: ${area.per} blocks` : "";
    return tip(`${found[1]}: ${count(area.blocks[found[0]] ?? 0)} blocks\n${found[3]}${scale}`, event.clientX, event.clientY);
  }

  tiers(ranks) {
    const box = byId("tiers");
    const total = (key) => ranks.reduce((sum, rank) => sum + (rank.tiers?.[key] ?? 0), 0);
    const found = [["host", "g2"], ["disk", "g3"]].filter(([, tier]) => total(`${tier}_blocks_total`) > 0);
    box.hidden = !found.length;
    for (const [name, tier] of found) {
      let row = box.querySelector(`[data-tier="${tier}"]`);
      if (!row) {
        row = make("div", { class: "tier", "data-tier": tier }, make("span", { text: `${name} tier` }), make("div", { class: "meter" }, make("i", { class: "c-cached" })), make("b"));
        box.append(row);
      }
      const used = total(`${tier}_blocks_used`);
      const all = total(`${tier}_blocks_total`);
      row.querySelector("i").style.transform = `scaleX(${used / all})`;
      say(row.querySelector("b"), `${count(used)} of ${count(all)}`);
    }
  }
}

/** The cells from `start` to before `end`, which go down one column after the other. */
function fillCells(context, start, end, { rows, size, step, top }) {
  let cell = start;
  while (cell < end) {
    const column = Math.floor(cell / rows);
    const row = cell % rows;
    const columns = row === 0 ? Math.floor((end - cell) / rows) : 0;
    const down = columns ? rows : Math.min(rows - row, end - cell);
    context.fillRect(column * step, top + row * size, step * (columns || 1), down * size);
    cell += columns ? columns * rows : down;
  }
}
