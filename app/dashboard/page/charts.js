// A line chart of the last minute on a canvas, with values at the pointer or at the arrow keys' place.

import { colours, surface, tip } from "./dom.js";

const LEFT = 54;
const BOTTOM = 20;
const TOP = 8;
const RIGHT = 6;
const BRIDGE_S = 10;

export class LineChart {
  /** `series`: [{ name, colour, width, fill }], first one in front; `show(value)` writes a value. */
  constructor(canvas, { series, show, marks }) {
    this.canvas = canvas;
    this.series = series;
    this.show = show;
    this.marks = marks;
    this.points = [];
    this.top = 0;
    this.at = null;
    this.spanS = 60;
    canvas.addEventListener("pointermove", (event) => this.pick(event.offsetX, event.clientX, event.clientY));
    canvas.addEventListener("pointerleave", () => this.leave());
    canvas.addEventListener("blur", () => this.leave());
    canvas.addEventListener("keydown", (event) => this.step(event));
  }

  /** `points`: [{ ago_s, values: [one per series, null where there is none], mark }], oldest first. */
  update(points) {
    this.points = points;
    this.draw();
  }

  draw() {
    const { context, width, height } = surface(this.canvas, 150);
    const c = colours();
    const shown = this.points.flatMap((point) => point.values).filter((value) => value !== null);
    this.settleTop(shown.length ? Math.max(...shown) : 0);
    const x = (ago) => LEFT + (1 - ago / this.spanS) * (width - LEFT - RIGHT);
    const y = (value) => height - BOTTOM - (value / this.top) * (height - TOP - BOTTOM);
    this.x = x;
    this.axes(context, c, width, height, y);
    for (const point of this.points) {
      if (!point.mark) continue;
      context.fillStyle = c.bad;
      context.globalAlpha = 0.75;
      context.fillRect(x(point.ago_s) - 1, height - BOTTOM - 5, 2, 5);
      context.globalAlpha = 1;
    }
    for (let index = this.series.length - 1; index >= 0; index -= 1) this.line(context, c, index, x, y, height);
    if (this.at !== null && this.points[this.at]) this.cross(context, c, x, y, height);
    if (!shown.length) {
      context.fillStyle = c.soft;
      context.textAlign = "center";
      context.fillText("nothing in the last minute", LEFT + (width - LEFT - RIGHT) / 2, (height - BOTTOM) / 2 + 4);
    }
  }

  /** The scale grows at once and shrinks only well below, so that it does not tremble. */
  settleTop(highest) {
    const wanted = niceTop(highest);
    if (wanted > this.top || wanted < this.top * 0.5 || !this.top) this.top = wanted;
  }

  axes(context, c, width, height, y) {
    context.font = "11px system-ui, sans-serif";
    context.lineWidth = 1;
    for (let part = 0; part <= 3; part += 1) {
      const value = (this.top * part) / 3;
      const line = Math.round(y(value)) + 0.5;
      context.strokeStyle = c.line;
      context.beginPath();
      context.moveTo(LEFT, line);
      context.lineTo(width - RIGHT, line);
      context.stroke();
      context.fillStyle = c.soft;
      context.textAlign = "right";
      context.fillText(part ? this.show(value) : "0", LEFT - 6, line + 3.5);
    }
    for (const ago of [60, 45, 30, 15, 0]) {
      context.textAlign = ago === 0 ? "right" : ago === 60 ? "left" : "center";
      context.fillText(ago ? `−${ago} s` : "now", this.x(ago), height - 5);
    }
  }

  line(context, c, index, x, y, height) {
    const { colour, width, fill } = this.series[index];
    context.strokeStyle = c[colour];
    context.lineWidth = width ?? 1.75;
    context.lineJoin = "round";
    for (const run of runs(this.points, index)) {
      context.beginPath();
      run.forEach(([ago, value], place) => context[place ? "lineTo" : "moveTo"](x(ago), y(value)));
      context.stroke();
      if (run.length === 1) {
        context.fillStyle = c[colour];
        context.beginPath();
        context.arc(x(run[0][0]), y(run[0][1]), 2, 0, 7);
        context.fill();
      }
      if (fill && run.length > 1) {
        context.lineTo(x(run.at(-1)[0]), height - BOTTOM);
        context.lineTo(x(run[0][0]), height - BOTTOM);
        context.globalAlpha = 0.12;
        context.fillStyle = c[colour];
        context.fill();
        context.globalAlpha = 1;
      }
    }
  }

  cross(context, c, x, y, height) {
    const point = this.points[this.at];
    const px = Math.round(x(point.ago_s)) + 0.5;
    context.strokeStyle = c.soft;
    context.beginPath();
    context.moveTo(px, TOP);
    context.lineTo(px, height - BOTTOM);
    context.stroke();
    point.values.forEach((value, index) => {
      if (value === null) return;
      context.fillStyle = c[this.series[index].colour];
      context.beginPath();
      context.arc(px, y(value), 3, 0, 7);
      context.fill();
    });
  }

  told() {
    const point = this.points[this.at];
    const values = point.values.map((value, index) => `${this.series[index].name} ${value === null ? "–" : this.show(value)}`);
    if (point.mark) values.push(`${point.mark} ${this.marks}`);
    return [`${Math.round(point.ago_s)} s ago`, ...values].join("\n");
  }

  pick(offset, clientX, clientY) {
    if (!this.points.length || !this.x) return;
    let best = 0;
    this.points.forEach((point, index) => {
      if (Math.abs(this.x(point.ago_s) - offset) < Math.abs(this.x(this.points[best].ago_s) - offset)) best = index;
    });
    this.at = best;
    this.draw();
    tip(this.told(), clientX, clientY);
  }

  step(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined || !this.points.length) return;
    event.preventDefault();
    this.at = Math.max(0, Math.min(this.points.length - 1, (this.at ?? this.points.length) + step));
    this.draw();
    const box = this.canvas.getBoundingClientRect();
    tip(this.told(), box.left + this.x(this.points[this.at].ago_s), box.top + 20);
    this.canvas.setAttribute("aria-description", this.told().replaceAll("\n", ", "));
  }

  leave() {
    this.at = null;
    tip(null);
    this.draw();
  }
}

/** Stretches [[ago, value], …]. Seconds without a sample are bridged if they are few. */
function runs(points, index) {
  const found = [];
  let open = null;
  for (const point of points) {
    const value = point.values[index];
    if (value === null) continue;
    if (open === null || open.at(-1)[0] - point.ago_s > BRIDGE_S) found.push((open = []));
    open.push([point.ago_s, value]);
  }
  return found;
}

function niceTop(value) {
  if (value <= 0) return 3;
  const rough = (value * 1.08) / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const unit = [1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10].find((step) => step * power >= rough);
  return unit * power * 3;
}
