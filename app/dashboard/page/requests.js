// The table of requests that ended, and the drawer with one request's whole timeline.

import { byId, count, make, say, shortId, time } from "./dom.js";
import { getJson } from "./link.js";

const PHASES = ["queue", "transfer", "prefill", "decode", "preempted"];

export class Recent {
  constructor(open) {
    this.open = open;
    this.shown = "";
  }

  /** `recent`: summaries, latest first. Rebuilt only where something ended. */
  update(recent, total) {
    say(byId("recent-note"), total === null ? "" : `${count(total)} ended`);
    byId("recent-empty").hidden = recent.length > 0;
    const key = recent.map((one) => one.id).join();
    if (key === this.shown) return;
    this.shown = key;
    const focused = document.activeElement?.closest?.("#recent tr")?.dataset.id;
    byId("recent").replaceChildren(...recent.map((one) => this.row(one)));
    if (focused) byId("recent").querySelector(`[data-id="${CSS.escape(focused)}"] button`)?.focus();
  }

  row(one) {
    const end = one.finish_reason ?? one.state;
    const good = ["stop", "length", "tool_calls", "function_call"].includes(end);
    const cells = [count(one.prompt_tokens), count(one.cached_tokens), count(one.output_tokens), one.preemptions || "", time(one.ttft_ms), time(one.e2e_ms)];
    return make("tr", { "data-id": one.id, onclick: () => this.open(one.id) },
      make("td", {}, make("button", { type: "button", class: "id", title: one.id, text: shortId(one.id) })),
      make("td", {}, make("span", { class: good ? "" : "bad", text: end })),
      ...cells.map((text) => make("td", { text })));
  }
}

export class Drawer {
  constructor() {
    this.dialog = byId("drawer");
    this.timer = null;
    this.dialog.addEventListener("close", () => clearTimeout(this.timer));
    // A press beside the drawer closes it.
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog && event.offsetX < 0) this.dialog.close();
    });
  }

  open = async (id) => {
    clearTimeout(this.timer);
    this.id = id;
    say(byId("drawer-title"), id);
    byId("drawer-body").replaceChildren(make("p", { class: "empty", text: "Reading…" }));
    if (!this.dialog.open) this.dialog.showModal();
    await this.load();
  };

  async load() {
    const id = this.id;
    let content;
    let lives = false;
    try {
      const one = await getJson(`/admin/requests/${encodeURIComponent(id)}`);
      lives = one.finished_ms === null;
      content = [facts(one), ...ways(one), ...story(one), ...handoff(one)];
    } catch (error) {
      content = [make("p", { class: "empty", text: error.message })];
    }
    if (this.id !== id) return;
    byId("drawer-body").replaceChildren(...content);
    if (lives && this.dialog.open && !document.hidden) this.timer = setTimeout(() => this.load(), 500);
  }
}

function facts(one) {
  const itl = one.output_tokens > 1 && one.finished_ms !== null && one.ttft_ms !== null ? (one.e2e_ms - one.ttft_ms) / (one.output_tokens - 1) : null;
  const found = [
    ["state", one.finish_reason ?? one.state], ["model", one.model || "–"], ["rank", one.dp_rank ?? "–"],
    ["TTFT", time(one.ttft_ms)], ["mean gap", time(itl)], ["e2e", time(one.e2e_ms)],
    ["prompt", `${count(one.prompt_tokens)} tokens`], ["from the cache", `${count(one.cached_tokens)} tokens`],
    ["output", `${count(one.output_tokens)}${one.max_tokens ? ` of ≤ ${count(one.max_tokens)}` : ""}`],
  ];
  if (one.external_tokens) found.push(["from the other server", `${count(one.external_tokens)} tokens`]);
  if (one.preemptions) found.push(["preempted", one.preemptions === 1 ? "once" : one.preemptions === 2 ? "twice" : `${one.preemptions} times`]);
  return make("dl", { class: "facts2" }, ...found.map(([name, value]) => make("div", {}, make("dt", { text: name }), make("dd", { text: String(value) }))));
}

/** The whole time as one bar, each phase in its colour, the prefill chunks below it. */
function ways(one) {
  const whole = Math.max(one.e2e_ms, 1e-6);
  const bar = make("div", { class: "ways", role: "img", "aria-label": "Phases over time" });
  const place = (css, start, end, title) => {
    const piece = make("i", { class: css, title });
    piece.style.left = `${(100 * start) / whole}%`;
    piece.style.width = `${(100 * (end - start)) / whole}%`;
    bar.append(piece);
  };
  for (const span of one.spans) place(`c-${span.phase}`, span.start_ms, span.end_ms, `${span.phase}: ${time(span.end_ms - span.start_ms)}`);
  for (const chunk of one.prefill_chunks ?? []) {
    place("chunk", chunk.start_ms, chunk.end_ms, `prefill chunk: ${chunk.tokens} tokens in ${time(chunk.end_ms - chunk.start_ms)}`);
  }
  const parts = PHASES.filter((phase) => one.parts_ms[phase] > 0).map((phase) => [phase, one.parts_ms[phase]]);
  const key = make("div", { class: "keyed" }, ...parts.map(([phase, ms]) => make("span", {}, make("i", { class: `c-${phase}` }), phase, make("b", { text: time(ms) }))));
  return [make("h3", { text: "Where the time went" }), bar, key];
}

function story(one) {
  const events = [[0, "queued"]];
  const add = (ms, text) => { if (ms !== null && ms !== undefined) events.push([ms, text]); };
  add(one.admitted_ms, `admitted${one.cached_tokens ? ` with ${count(one.cached_tokens)} cached tokens` : ""}`);
  // Before the chunks: of the same moment the earlier line comes first.
  for (const ms of one.preempted_at_ms ?? []) add(ms, "preempted: its blocks were taken, back to the head of the line");
  for (const ms of one.readmitted_at_ms ?? []) add(ms, "admitted again");
  const chunks = one.prefill_chunks ?? [];
  chunks.slice(0, 12).forEach((chunk, index) => {
    add(chunk.start_ms, `prefill chunk ${index + 1} of ${one.prefill_chunks_total}: ${count(chunk.tokens)} tokens in ${time(chunk.end_ms - chunk.start_ms)}`);
  });
  if (one.prefill_chunks_total > 12) add(chunks[12]?.start_ms, `… ${one.prefill_chunks_total - 12} further chunks`);
  add(one.first_token_ms, "first token");
  add(one.finished_ms, `finished: ${one.finish_reason ?? one.state}, ${count(one.output_tokens)} tokens`);
  events.sort((a, b) => a[0] - b[0]);
  return [make("h3", { text: "What happened" }), make("dl", { class: "story" }, ...events.flatMap(([ms, text]) => [make("dt", { text: `+${time(ms)}` }), make("dd", { text })]))];
}

function handoff(one) {
  if (!one.handoff) return [];
  const from = one.handoff.created_ms;
  const rows = one.handoff.timeline.flatMap((step) => [make("dt", { text: `+${time(step.at_ms - from)}` }), make("dd", { text: step.event })]);
  return [make("h3", { text: `Handoff ${one.handoff.handoff_id}` }), make("dl", { class: "story" }, ...rows)];
}
