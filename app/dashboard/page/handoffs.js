// One lane per handoff: prefill, transfer, decode. The marker moves when the server tells that it moved.

import { byId, count, make, say, shortId, time } from "./dom.js";

const LANES = 8;
const ENDED_SHOWN_MS = 6000;
const PLACES = { prefill: 18.5, transfer: 50, decode: 81.5, done: 100, failed: 50 };

export class Handoffs {
  constructor(open) {
    this.open = open;
    this.lanes = new Map();
  }

  /** `handoffs`: the records of /admin/handoffs, live ones first; times in engine ms. */
  update(handoffs, nowMs, workerType, counts) {
    byId("handoffs").hidden = workerType === "aggregated" && !handoffs.length;
    const live = handoffs.filter((one) => one.ended_ms === null || nowMs - one.ended_ms < ENDED_SHOWN_MS);
    const shown = [...live, ...handoffs.filter((one) => !live.includes(one))].slice(0, LANES);
    const open = handoffs.filter((one) => one.ended_ms === null).length;
    const told = Object.entries(counts ?? {}).filter(([, value]) => value).map(([name, value]) => `${count(value)} ${name}`);
    say(byId("handoffs-note"), [`${open} under way`, ...told].join(", "));
    const seen = new Set();
    const list = byId("lanes");
    shown.forEach((one, place) => {
      seen.add(one.handoff_id);
      let lane = this.lanes.get(one.handoff_id);
      if (!lane) this.lanes.set(one.handoff_id, (lane = this.lane(one)));
      this.set(lane, one, nowMs);
      if (list.children[place] !== lane.item) list.insertBefore(lane.item, list.children[place] ?? null);
    });
    for (const [id, lane] of this.lanes) {
      if (seen.has(id)) continue;
      lane.item.remove();
      this.lanes.delete(id);
    }
    list.querySelector(".empty")?.remove();
    if (!shown.length) list.append(make("li", { class: "empty", text: "No handoff yet." }));
  }

  lane(one) {
    const marker = make("i");
    const said = make("span", { class: "said" });
    const name = make("span", { class: "id", text: shortId(one.handoff_id), title: one.handoff_id });
    return { item: make("li", { class: "lane" }, name, make("div", { class: "road", "aria-hidden": "true" }, marker), said), marker, said };
  }

  set(lane, one, nowMs) {
    const stage = stageOf(one);
    const place = stage === "failed" ? PLACES[lane.item.dataset.stage] ?? PLACES.failed : PLACES[stage];
    if (lane.item.dataset.stage !== stage) {
      lane.item.dataset.stage = stage;
      lane.marker.style.left = `calc(${place}% - ${(26 * place) / 100}px)`;
    }
    lane.item.classList.toggle("ended", one.ended_ms !== null);
    const took = (one.ended_ms ?? nowMs) - one.created_ms;
    const what = one.ended_ms === null ? one.state.replaceAll("_", " ") : one.outcome ?? one.state;
    say(lane.said, `${what} · ${time(took)}`);
    lane.said.title = one.reason ?? "";
  }
}

/** Where a handoff is, from the state that its server knows; a server sees its own side only. */
function stageOf(one) {
  if (one.ended_ms !== null) {
    return ["completed", "released", "applied", "done", null].includes(one.outcome) ? "done" : "failed";
  }
  const state = one.state;
  if (/decod|activat|streaming/.test(state)) return "decode";
  if (/held|reserv|transfer|releas|ready/.test(state)) return "transfer";
  return "prefill";
}
