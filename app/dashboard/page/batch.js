// The waiting line and the running batch: all requests as bars on a canvas, the first ones as rows to open.

import { byId, colours, count, keepOneTabStop, make, rove, say, shortId, surface, time, tip } from "./dom.js";

const ROWS = 20;
const STRIP = 64;
const QUEUE = 22;

export class Batch {
  /** `open(id)` shows a request's timeline. */
  constructor(open) {
    this.open = open;
    this.list = byId("rows");
    this.rows = new Map();
    this.running = [];
    this.waiting = [];
    rove(this.list, ".row");
    byId("strip").addEventListener("pointermove", (event) => this.pick(event, this.running, this.stripStep));
    byId("queue").addEventListener("pointermove", (event) => this.pick(event, this.waiting, this.queueStep));
    byId("strip").addEventListener("click", (event) => this.openAt(event, this.running, this.stripStep));
    byId("queue").addEventListener("click", (event) => this.openAt(event, this.waiting, this.queueStep));
    for (const id of ["strip", "queue"]) byId(id).addEventListener("pointerleave", () => tip(null));
  }

  update({ running, waiting, runningTotal, waitingTotal, maxRunning }) {
    Object.assign(this, { running, waiting, runningTotal, waitingTotal });
    const most = maxRunning ? ` of at most ${count(maxRunning)}` : "";
    const drawn = running.length < runningTotal ? `, the ${running.length} oldest shown` : "";
    say(byId("batch-note"), `${count(runningTotal)} running${most}${drawn}`);
    byId("queue-label").replaceChildren("Waiting ", make("b", { text: count(waitingTotal) }));
    byId("queue").setAttribute("aria-label", `${waitingTotal} requests wait`);
    byId("strip").setAttribute("aria-label", `${runningTotal} requests run`);
    this.fill([...running.slice(0, ROWS), ...waiting.slice(0, Math.max(0, ROWS - running.length))]);
    this.draw();
  }

  draw() {
    this.drawQueue();
    this.drawStrip();
  }

  /** One mark per waiting request, its height the prompt's length; the head of the line is at the left. */
  drawQueue() {
    const { context, width, height } = surface(byId("queue"), QUEUE);
    const c = colours();
    const shown = this.waiting.length;
    context.fillStyle = c.line;
    context.fillRect(0, height - 1, width, 1);
    this.queueStep = Math.min(9, width / Math.max(1, shown));
    const longest = Math.max(1, ...this.waiting.map((one) => one.prompt));
    this.waiting.forEach((one, index) => {
      const tall = 5 + (height - 6) * Math.sqrt(one.prompt / longest);
      context.fillStyle = one.preemptions ? c.bad : c.waiting;
      context.fillRect(index * this.queueStep, height - 1 - tall, Math.max(1, this.queueStep - 2), tall);
    });
  }

  /** One bar per running request, from below: cached, computed prompt, generated, and what is to come. */
  drawStrip() {
    const { context, width, height } = surface(byId("strip"), STRIP);
    const c = colours();
    const step = Math.min(26, width / Math.max(1, this.running.length));
    const bar = Math.max(1, step - (step > 4 ? 2 : step > 2 ? 1 : 0));
    this.stripStep = step;
    const longest = Math.max(1, ...this.running.map((one) => one.prompt + one.planned));
    this.running.forEach((one, index) => {
      const unit = (height - 4) / longest;
      let y = height;
      for (const [colour, tokens] of parts(one)) {
        const tall = tokens * unit;
        context.fillStyle = c[colour];
        context.fillRect(index * step + 1, y - tall, bar, tall);
        y -= tall;
      }
      if (one.preemptions) {
        context.fillStyle = c.bad;
        context.fillRect(index * step + 1, Math.max(0, y - 3), bar, 2);
      }
    });
  }

  fill(shown) {
    const seen = new Set();
    shown.forEach((one, place) => {
      seen.add(one.id);
      let row = this.rows.get(one.id);
      if (!row) this.rows.set(one.id, (row = this.row(one)));
      this.set(row, one);
      if (this.list.children[place] !== row.item) this.list.insertBefore(row.item, this.list.children[place] ?? null);
    });
    for (const [id, row] of this.rows) {
      if (seen.has(id)) continue;
      row.item.remove();
      this.rows.delete(id);
    }
    this.list.querySelector(".none")?.remove();
    if (!shown.length) this.list.append(make("li", { class: "none", text: "Idle: nothing runs and nothing waits." }));
    keepOneTabStop(this.list, ".row");
  }

  row(one) {
    const cached = make("i", { class: "c-cached" });
    const prefill = make("i", { class: "c-prefill" });
    const decode = make("i", { class: "c-decode" });
    const number = make("span", { class: "num" });
    const button = make("button", { type: "button", class: "row", tabindex: "-1", onclick: () => this.open(one.id) },
      make("span", { class: "id", text: shortId(one.id) }), make("span", { class: "track" }, decode, prefill, cached), number);
    return { item: make("li", {}, button), button, cached, prefill, decode, number };
  }

  set(row, one) {
    const whole = Math.max(1, one.prompt + one.planned);
    const waits = one.phase === "queue" || one.phase === "preempted" || one.phase === "transfer";
    const ends = { cached: one.cached, prefill: one.cached + one.computed, decode: one.cached + one.computed + one.output };
    for (const [name, tokens] of Object.entries(ends)) row[name].style.transform = `scaleX(${waits ? 0 : Math.min(1, tokens / whole)})`;
    row.button.classList.toggle("waits", waits);
    const text = waits ? (one.phase === "queue" ? `waits ${time(one.waitedMs)}` : one.phase) : `${one.output} / ${one.planned}`;
    say(row.number, text + (one.preemptions ? `  ↺${one.preemptions}` : ""));
    row.button.setAttribute("aria-label", describe(one));
  }

  at(event, list, step) {
    return list[Math.floor(event.offsetX / Math.max(0.1, step))];
  }

  pick(event, list, step) {
    const one = this.at(event, list, step);
    tip(one ? describe(one).replaceAll(", ", "\n") : null, event.clientX, event.clientY);
  }

  openAt(event, list, step) {
    const one = this.at(event, list, step);
    if (one) this.open(one.id);
  }
}

function parts(one) {
  const rest = Math.max(0, one.prompt - one.cached - one.computed) + Math.max(0, one.planned - one.output);
  return [["cached", one.cached], ["prefill", one.computed], ["decode", one.output], ["rest", rest]];
}

function describe(one) {
  const told = [one.id, one.phase, `${one.prompt} prompt tokens`];
  if (one.cached) told.push(`${one.cached} from the cache`);
  told.push(`${one.output} of ${one.planned} generated`);
  if (one.preemptions) told.push(`preempted ${one.preemptions} times`);
  return told.join(", ");
}
