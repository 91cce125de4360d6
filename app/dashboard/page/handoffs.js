// One lane per handoff: prefill, transfer, decode. The marker moves when the server tells that it moved.

import { byId, count, make, say, shortId, time } from "./dom.js";

const LANES = 8;
// Where each stage begins and ends on the road, in percent.
const ROAD = { prefill: [0, 36], transfer: [38, 62], decode: [64, 100] };
const MARKER_PX = 26;

export class Handoffs {
  constructor() {
    this.lanes = new Map();
    this.slots = [];
    this.typicalMs = null;
  }

  /** `handoffs`: the records of /admin/handoffs, live ones first; `requests`: those in the batch or waiting. */
  update({ handoffs, nowMs, workerType, handoffCounts: counts, running, waiting }) {
    const requests = new Map([...running, ...waiting].map((one) => [one.id, one]));
    byId("handoffs").hidden = workerType === "aggregated" && !handoffs.length;
    const open = handoffs.filter((one) => one.ended_ms === null).length;
    const told = Object.entries(counts ?? {}).filter(([, value]) => value).map(([name, value]) => `${count(value)} ${name}`);
    say(byId("handoffs-note"), [`${open} under way`, ...told].join(", "));
    const known = new Map(handoffs.map((one) => [one.handoff_id, one]));
    this.assign(handoffs, known, requests);
    this.typicalMs = typicalTransferMs(handoffs) ?? this.typicalMs;
    const list = byId("lanes");
    this.slots.forEach((id, place) => {
      let lane = this.lanes.get(id);
      if (!lane) this.lanes.set(id, (lane = this.lane(known.get(id))));
      if (known.has(id)) this.set(lane, known.get(id), nowMs, requests.get(known.get(id).request_id));
      if (list.children[place] !== lane.item) list.insertBefore(lane.item, list.children[place] ?? null);
    });
    for (const [id, lane] of this.lanes) {
      if (this.slots.includes(id)) continue;
      lane.item.remove();
      this.lanes.delete(id);
    }
    list.querySelector(".empty")?.remove();
    if (!this.slots.length) list.append(make("li", { class: "empty", text: "No handoff yet." }));
  }

  /** A handoff keeps its lane; a new one takes a free lane, or that of the one that is of least interest now. */
  assign(handoffs, known, requests) {
    const interest = (id) => {
      const one = known.get(id);
      if (one === undefined) return 0;
      const stage = stageOf(one, requests.get(one.request_id));
      return stage === "done" || stage === "failed" ? 1 : one.ended_ms === null ? 3 : 2;
    };
    const fresh = handoffs.filter((one) => !this.slots.includes(one.handoff_id)).map((one) => one.handoff_id);
    fresh.sort((a, b) => interest(b) - interest(a));
    for (const id of fresh) {
      if (this.slots.length < LANES) {
        this.slots.push(id);
        continue;
      }
      const rank = (slot) => [interest(this.slots[slot]), known.get(this.slots[slot])?.ended_ms ?? 0];
      const least = this.slots.map((_, slot) => slot).sort((a, b) => rank(a)[0] - rank(b)[0] || rank(a)[1] - rank(b)[1])[0];
      if (rank(least)[0] >= interest(id)) return;
      this.slots[least] = id;
    }
  }

  lane(one) {
    const marker = make("i");
    const said = make("span", { class: "said" });
    const name = make("span", { class: "id", text: shortId(one.handoff_id), title: one.handoff_id });
    return { item: make("li", { class: "lane" }, name, make("div", { class: "road", "aria-hidden": "true" }, marker), said), marker, said };
  }

  set(lane, one, nowMs, request) {
    const stage = stageOf(one, request);
    if (stage === "failed") lane.place ??= 50;
    else lane.place = placeOf(stage, one, nowMs, request, this.typicalMs);
    if (lane.item.dataset.stage !== stage) lane.item.dataset.stage = stage;
    const left = `calc(${lane.place}% - ${(MARKER_PX * lane.place) / 100}px)`;
    if (lane.left !== left) lane.marker.style.left = lane.left = left;
    lane.item.classList.toggle("ended", stage === "done" || stage === "failed");
    say(lane.said, laneText(one, stage, nowMs, request));
    lane.said.title = one.reason ?? "";
  }
}

/** Where a handoff is, as far as this server knows: each server sees its own side. */
function stageOf(one, request) {
  if (one.ended_ms !== null) {
    if (!["completed", "released"].includes(one.outcome)) return "failed";
    return one.destination !== null && request ? "decode" : "done";
  }
  if (/^(activat|releas|decod)/.test(one.state)) return "decode";
  if (/^(held|reserv|transfer|claim|draining)/.test(one.state)) return "transfer";
  return "prefill";
}

/** The place within the stage, by what is known of the way: tokens computed, time of the transfer, tokens made. */
function placeOf(stage, one, nowMs, request, typicalMs) {
  if (stage === "done") return 100;
  const [from, to] = ROAD[stage];
  let share = 0.5;
  if (stage === "decode" && request) share = request.output / request.planned;
  if (stage === "prefill" && request) share = (request.cached + request.computed) / Math.max(1, request.prompt);
  if (stage === "transfer") share = transferShare(one, nowMs, typicalMs) ?? share;
  return from + (to - from) * Math.max(0, Math.min(1, share));
}

function transferShare(one, nowMs, typicalMs) {
  const began = one.timeline.findLast((step) => /transfer|claimed/.test(step.event))?.at_ms;
  const takes = one.source?.transfer_delay_ms ?? typicalMs;
  if (began === undefined) return 0;
  return takes ? (nowMs - began) / takes : null;
}

/** How long the latest transfer that is over took: a guess for those under way. */
function typicalTransferMs(handoffs) {
  for (const one of handoffs) {
    const end = one.timeline.find((step) => step.event === "transfer completed");
    const begin = one.timeline.find((step) => step.event.startsWith("start transfer"));
    if (end && begin) return end.at_ms - begin.at_ms;
  }
  return null;
}

function laneText(one, stage, nowMs, request) {
  if (stage === "decode" && request) return `${request.output} of ${request.planned} tokens`;
  const took = time((one.ended_ms ?? nowMs) - one.created_ms);
  return `${one.ended_ms === null ? one.state : one.outcome ?? one.state} · ${took}`;
}
