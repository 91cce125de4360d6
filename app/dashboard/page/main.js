// Wires the parts to the feed. Frames are drawn at most once per animation frame, the latest one wins.

import { Batch } from "./batch.js";
import { BlockMap } from "./blocks.js";
import { LineChart } from "./charts.js";
import { byId, count, make, percent, percentParts, say, time, timeParts, trim } from "./dom.js";
import { frameOf } from "./frame.js";
import { Handoffs } from "./handoffs.js";
import { Feed, onKeyWanted, setKeys } from "./link.js";
import { Drawer, Recent } from "./requests.js";
import { Switches } from "./switches.js";
import { startTheme } from "./theme.js";
import { TryIt } from "./tryit.js";

const drawer = new Drawer();
const batch = new Batch(drawer.open);
const blocks = new BlockMap();
const handoffs = new Handoffs();
const recent = new Recent(drawer.open);
const tryIt = new TryIt();
const switches = new Switches();
const latency = [{ name: "p50", colour: "decode", fill: true }, { name: "p99", colour: "waiting", width: 1.25 }];
const charts = {
  ttft: new LineChart(byId("ttft"), { series: latency, show: time, marks: "preemptions" }),
  itl: new LineChart(byId("itl"), { series: latency, show: time, marks: "preemptions" }),
  rate: new LineChart(byId("rate"), {
    series: [{ name: "tokens/s", colour: "cached", fill: true }], show: count, marks: "preemptions",
  }),
};

const tiles = new Map();
let latest = null;
let asked = false;
let held = false;

function show(frame) {
  latest = frame;
  if (asked || held) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    if (!held) draw(latest);
  });
}

function draw(frame) {
  document.title = `${frame.model} · mocker`;
  say(byId("model"), frame.model);
  showFacts(frame);
  showTiles(frame);
  batch.update(frame);
  blocks.update(frame.ranks);
  const points = (pick) => frame.curve.map((point) => ({ ago_s: point.agoS, values: pick(point), mark: point.preemptions }));
  charts.ttft.update(points((point) => point.ttft));
  charts.itl.update(points((point) => point.itl));
  charts.rate.update(points((point) => [point.rate]));
  told("ttft-now", frame.ttft);
  told("itl-now", frame.itl);
  const what = frame.workerType === "prefill" ? "computed prompt" : "output";
  say(byId("rate-now"), `${what} tokens/s, ${count(frame.peakRate)} at most`);
  handoffs.update(frame);
  recent.update(frame.recent, frame.endedTotal);
  tryIt.model = frame.model;
  byId("main").dataset.frames = String(Number(byId("main").dataset.frames ?? 0) + 1);
}

function told(id, [p50, p99]) {
  byId(id).replaceChildren("p50 ", make("b", { text: time(p50) }), "  p99 ", make("b", { text: time(p99) }));
}

function showFacts(frame) {
  const late = frame.latenessMs === null ? [] : [[time(frame.latenessMs), frame.saturated ? "late at p99: saturated" : "late at p99"]];
  const facts = [
    [frame.state, null],
    [frame.workerType, "worker"],
    [frame.speedup === 0 ? "unscaled" : `${trim(frame.speedup)}×`, "speed-up"],
    [String(frame.ranks.length), frame.ranks.length === 1 ? "rank" : "ranks"],
    [`${frame.blockSize}`, "tokens a block"],
    ...late,
    [time(frame.uptimeMs), "up"],
  ];
  const key = JSON.stringify(facts.slice(0, -1)) + Math.floor(frame.uptimeMs / 1000);
  if (byId("facts").dataset.key === key) return;
  byId("facts").dataset.key = key;
  byId("facts").replaceChildren(...facts.map(([value, name]) => {
    if (name !== null) return make("li", {}, make("b", { text: value }), ` ${name}`);
    const css = { ready: "dot", starting: "dot wait" }[value] ?? "dot bad";
    return make("li", {}, make("span", { class: css }), make("b", { text: value }));
  }));
}

function showTiles(frame) {
  const held = frame.heldShare;
  const found = [
    ["running", count(frame.runningTotal), "", `${percent(frame.maxRunning ? frame.runningTotal / frame.maxRunning : null)} of the batch`],
    ["waiting", count(frame.waitingTotal), "", frame.oldestWaitMs === null ? "nobody waits" : `the oldest for ${time(frame.oldestWaitMs)}`],
    ["KV in use", ...percentParts(held), `${count(frame.heldBlocks)} blocks`],
    ["throughput", count(frame.rate), "tok/s", `${trim(frame.requestRate)} requests/s`],
    ["TTFT p50", ...timeParts(frame.ttft[0]), `p99 ${time(frame.ttft[1])}`],
    ["ITL p50", ...timeParts(frame.itl[0]), `p99 ${time(frame.itl[1])}`],
    ["preemptions", count(frame.preemptions), "", `${count(frame.preemptionsLately)} in the last minute`],
    ["prefix hits", ...percentParts(frame.hitShare), "of prompt tokens"],
  ];
  for (const [name, value, unit, note] of found) {
    let tile = tiles.get(name);
    if (!tile) {
      tile = { value: make("b"), note: make("small"), number: document.createTextNode(""), unit: make("i") };
      tile.value.append(tile.number, tile.unit);
      tile.box = make("div", { class: "tile", "data-tile": name }, make("span", { text: name }), tile.value, tile.note);
      tiles.set(name, tile);
      byId("tiles").append(tile.box);
    }
    if (tile.number.data !== value) tile.number.data = value;
    say(tile.unit, unit);
    say(tile.note, note);
  }
  tiles.get("preemptions").box.classList.toggle("hot", frame.preemptionsLately > 0);
}

function askForKeys(why) {
  const dialog = byId("key-dialog");
  say(byId("key-why"), why ? `This server wants a key for its ${why === "admin" ? "admin routes" : "API"}. Kept in this page's memory only.` : "Kept in this page's memory only.");
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      if (dialog.returnValue === "use") setKeys(byId("key-admin").value, byId("key-api").value);
      resolve(dialog.returnValue === "use");
      dialog.returnValue = "";
    }, { once: true });
  });
}

function redraw() {
  for (const chart of Object.values(charts)) if (latest) chart.draw();
  if (!latest) return;
  batch.draw();
  blocks.draw();
  tryIt.draw();
}

function showLink(state) {
  const link = byId("link");
  link.className = `link ${state === "locked" ? "lost" : state}`;
  say(link, { live: "live", connecting: "connecting", lost: "no connection", locked: "locked", asleep: "asleep" }[state]);
  if (state === "connecting") return;
  const notice = byId("notice");
  notice.hidden = !(state === "locked" || (state === "lost" && latest !== null));
  say(notice, state === "locked"
    ? "This server shows its figures to holders of its admin key only. Press Keys to give it."
    : "The server does not answer. What you see is the last that came; the page tries again by itself.");
}

onKeyWanted(askForKeys);
startTheme(redraw);
byId("keys").addEventListener("click", async () => {
  if (!(await askForKeys(null))) return;
  feed.follow();
  switches.load();
});
byId("pause").addEventListener("click", () => {
  held = !held;
  byId("pause").setAttribute("aria-pressed", String(held));
  if (!held && latest) show(latest);
});
// A change of the window's size ends a canvas's picture.
let resized = 0;
new ResizeObserver(() => {
  cancelAnimationFrame(resized);
  resized = requestAnimationFrame(redraw);
}).observe(byId("main"));

let loaded = false;
const feed = new Feed("/admin/events/dashboard", (record) => {
  show(frameOf(record));
  if (!loaded) {
    loaded = true;
    switches.load();
  }
}, showLink);
feed.follow();
