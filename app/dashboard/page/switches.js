// Live settings: speed-up, timing and faults. Each change is one PATCH; what the server says then is shown.

import { byId, make, say } from "./dom.js";
import { getJson } from "./link.js";

// [path of the value, label, kind, lowest and highest of the slider]
const FIELDS = [
  [["speedup_ratio"], "Speed-up", "ratio", 0.1, 1000],
  [["decode_speedup_ratio"], "Decode speed-up", "ratio", 0.1, 100],
  [["faults", "error"], "Failing requests, %", "share", 0, 100],
  [["faults", "stall"], "Streams that stall, %", "share", 0, 100],
  [["faults", "disconnect"], "Streams cut off, %", "share", 0, 100],
];
const TIMINGS = {
  polynomial: { type: "polynomial" },
  fixed: { type: "fixed", prefill_ms: 50, decode_ms: 8 },
};

export class Switches {
  constructor() {
    this.form = byId("switches");
    this.inputs = [];
    this.form.addEventListener("submit", (event) => event.preventDefault());
  }

  async load() {
    try {
      this.show((await getJson("/admin/config")).live);
      this.note("act at once");
    } catch (error) {
      this.form.replaceChildren();
      this.note(error.message, true);
    }
  }

  note(text, bad = false) {
    say(byId("switches-note"), text);
    byId("switches-note").classList.toggle("bad-text", bad);
  }

  show(config) {
    this.config = config;
    if (!this.inputs.length) this.build(config);
    for (const set of this.inputs) set(config);
  }

  build(config) {
    const parts = FIELDS.filter(([path]) => dig(config, path) !== undefined).map((field, index) => this.slider(field, index));
    if (config.timing_model !== undefined) parts.splice(2, 0, this.timing());
    this.form.replaceChildren(...parts);
  }

  slider([path, label, kind, low, high], index) {
    const id = `switch-${path.join("-")}`;
    const slider = make("input", { type: "range", min: "0", max: "1000", "aria-label": label });
    const number = make("input", { type: "number", id, min: kind === "ratio" ? 0 : low, max: kind === "share" ? high : null, step: "any", "data-index": index });
    const scale = kind === "ratio" ? logScale(low, high) : shareScale();
    slider.addEventListener("input", () => { number.value = shown(scale.value(slider.value / 1000)); });
    slider.addEventListener("change", () => this.send(path, kind, number));
    number.addEventListener("change", () => this.send(path, kind, number));
    this.inputs.push((config) => {
      const value = dig(config, path) * (kind === "share" ? 100 : 1);
      if (document.activeElement !== number) number.value = shown(value);
      slider.value = String(1000 * scale.share(value));
    });
    return make("div", { class: `switch${path[0] === "faults" ? " fault" : ""}` }, make("label", { for: id, text: label }), slider, number);
  }

  timing() {
    const select = make("select", { id: "switch-timing" });
    select.addEventListener("change", () => this.patch({ timing_model: TIMINGS[select.value] }));
    this.inputs.push((config) => {
      const type = config.timing_model?.type ?? config.timing_model;
      const names = [...new Set([...Object.keys(TIMINGS), type])];
      if (select.length !== names.length) {
        select.replaceChildren(...names.map((name) => make("option", { value: name, text: name, disabled: !(name in TIMINGS) })));
      }
      select.value = type;
    });
    return make("div", { class: "switch plain" }, make("label", { for: "switch-timing", text: "Timing model" }), select);
  }

  send(path, kind, number) {
    if (number.value === "" || !number.checkValidity()) {
      this.note(`${number.validationMessage || "A number is missing."}`, true);
      return;
    }
    const value = Number(number.value) / (kind === "share" ? 100 : 1);
    this.patch(path.length === 1 ? { [path[0]]: value } : { [path[0]]: { [path[1]]: value } });
  }

  async patch(change) {
    this.note("…");
    try {
      this.show((await getJson("/admin/config", { method: "PATCH", body: change })).live);
      this.note("done");
    } catch (error) {
      if (this.config) this.show(this.config);
      this.note(error.message, true);
    }
  }
}

const dig = (value, path) => path.reduce((at, name) => at?.[name], value);

const shown = (value) => String(Number(value.toPrecision(3)));

/** Positions 0..1 of a slider onto a logarithmic range. */
function logScale(low, high) {
  const span = Math.log(high / low);
  return {
    value: (share) => low * Math.exp(share * span),
    share: (value) => (value > low ? Math.min(1, Math.log(value / low) / span) : 0),
  };
}

/** Small shares get most of the way: faults are rare. */
function shareScale() {
  return { value: (share) => 100 * share ** 3, share: (value) => Math.cbrt(value / 100) };
}
