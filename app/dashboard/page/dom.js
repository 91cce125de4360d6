// Elements, numbers and colours for every other part. Knows nothing of the data.

export const byId = (id) => document.getElementById(id);

/** An element with attributes (`on…` are listeners, `text` its text) and children. */
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

/** Set text only where it differs: an untouched node costs no layout. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function count(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1e6) return `${trim(value / 1e6)} M`;
  if (value >= 1e5) return `${trim(value / 1e3)} k`;
  return Math.round(value).toLocaleString("en");
}

/** [number, unit] of a time in ms. */
export function timeParts(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return ["–", ""];
  if (ms >= 60e3) return [`${Math.floor(ms / 60e3)}:${String(Math.floor((ms % 60e3) / 1e3)).padStart(2, "0")}`, "min"];
  if (ms >= 1000) return [trim(ms / 1000), "s"];
  return [ms >= 1 || ms === 0 ? trim(ms) : ms.toFixed(2), "ms"];
}

export const time = (ms) => timeParts(ms).join(" ").trim();

export function trim(value) {
  if (value >= 100) return String(Math.round(value));
  return String(Number(value.toPrecision(3)));
}

/** [number, unit] of a share. */
export const percentParts = (share) => (share === null || share === undefined ? ["–", ""] : percent(share).split(" "));

export const percent = (share) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`);

/** The last part of an id, which is what differs. */
export const shortId = (id) => (id.length <= 13 ? id : `…${id.replace(/_?0$/, "").slice(-10)}`);

/** A canvas ready to draw on: crisp at any pixel density; sizes in CSS pixels. */
export function surface(canvas, height = canvas.clientHeight) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

let palette = null;

/** The theme's colours by name; read once per theme. */
export function colours() {
  if (palette === null) {
    const style = getComputedStyle(document.documentElement);
    palette = new Proxy({}, {
      get: (known, name) => (known[name] ??= style.getPropertyValue(`--${name}`).trim()),
    });
  }
  return palette;
}

export function forgetColours() {
  palette = null;
}

/** Text next to the pointer; null takes it away. */
export function tip(text, x = 0, y = 0) {
  const node = byId("tip");
  node.hidden = text === null;
  if (text === null) return;
  say(node, text);
  const left = Math.min(x + 12, window.innerWidth - node.offsetWidth - 8);
  node.style.left = `${Math.max(4, left)}px`;
  node.style.top = `${Math.max(4, y - node.offsetHeight - 10)}px`;
}

/** Arrow keys, Home and End move the focus among `selector` inside `box`; one of them is in the tab order. */
export function rove(box, selector) {
  box.addEventListener("keydown", (event) => {
    const steps = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, Home: -1e6, End: 1e6 };
    if (!(event.key in steps)) return;
    const items = [...box.querySelectorAll(selector)];
    const at = items.indexOf(document.activeElement);
    if (at < 0) return;
    event.preventDefault();
    items[Math.max(0, Math.min(items.length - 1, at + steps[event.key]))].focus();
  });
  box.addEventListener("focusin", (event) => {
    for (const item of box.querySelectorAll(selector)) item.tabIndex = item === event.target ? 0 : -1;
  });
}

/** After a list changed: exactly one item stays in the tab order. */
export function keepOneTabStop(box, selector) {
  const items = [...box.querySelectorAll(selector)];
  if (items.length && !items.some((item) => item.tabIndex === 0)) items[0].tabIndex = 0;
}
