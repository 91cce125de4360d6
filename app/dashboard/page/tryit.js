// Sends one streaming chat request to this very server and shows when each chunk came.

import { byId, colours, say, surface, time } from "./dom.js";
import { call, errorText, records } from "./link.js";

const TICKS_HEIGHT = 46;

export class TryIt {
  constructor() {
    this.ticks = [];
    this.model = null;
    this.abort = null;
    this.startMs = 0;
    this.endMs = null;
    byId("try").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.abort) this.abort.abort();
      else this.send();
    });
    byId("try-prompt").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("try").requestSubmit();
    });
  }

  async send() {
    this.abort = new AbortController();
    this.ticks = [];
    this.endMs = null;
    this.startMs = performance.now();
    byId("try-text").textContent = "";
    say(byId("try-send"), "Stop");
    say(byId("try-told"), "Waiting for the first chunk…");
    this.animate();
    try {
      await this.stream();
      this.tell();
    } catch (error) {
      say(byId("try-told"), error.name === "AbortError" ? `Stopped after ${this.ticks.length} chunks.` : error.message);
    }
    this.endMs = performance.now() - this.startMs;
    this.abort = null;
    say(byId("try-send"), "Send");
    this.draw();
  }

  async stream() {
    const response = await call("/v1/chat/completions", {
      method: "POST",
      signal: this.abort.signal,
      body: {
        model: this.model,
        stream: true,
        max_tokens: Number(byId("try-max").value) || 64,
        ignore_eos: byId("try-eos").checked,
        messages: [{ role: "user", content: byId("try-prompt").value }],
      },
    });
    if (!response.ok) throw new Error(errorText(await response.json().catch(() => null)) ?? `The server answered ${response.status}.`);
    for await (const [, data] of records(response)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(errorText(chunk));
      const delta = chunk.choices?.[0]?.delta ?? {};
      const text = delta.content ?? delta.reasoning_content ?? "";
      if (text) this.add(text);
    }
  }

  add(text) {
    this.ticks.push(performance.now() - this.startMs);
    byId("try-text").append(text);
    byId("try-text").scrollTop = 1e9;
  }

  animate() {
    const frame = () => {
      this.draw();
      if (this.abort) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  tell() {
    if (!this.ticks.length) return say(byId("try-told"), "The answer had no text.");
    const gaps = this.ticks.slice(1).map((at, index) => at - this.ticks[index]).sort((a, b) => a - b);
    const mean = gaps.reduce((sum, gap) => sum + gap, 0) / Math.max(1, gaps.length);
    const told = [`${this.ticks.length} chunks`, `first after ${time(this.ticks[0])}`];
    if (gaps.length) told.push(`gap ${time(mean)} on average, ${time(gaps[Math.floor(gaps.length * 0.99)])} at p99`);
    told.push(`${time(this.ticks.at(-1))} in all`);
    return say(byId("try-told"), told.join(" · "));
  }

  draw() {
    const { context, width, height } = surface(byId("try-ticks"), TICKS_HEIGHT);
    const c = colours();
    if (!this.startMs) return;
    const now = this.endMs ?? performance.now() - this.startMs;
    const whole = Math.max(now, 50);
    const x = (ms) => 6 + (ms / whole) * (width - 12);
    const base = height - 15;
    const first = this.ticks[0] ?? now;
    context.fillStyle = c.prefill;
    context.globalAlpha = 0.22;
    context.fillRect(6, 5, x(first) - 6, base - 5);
    context.globalAlpha = this.ticks.length > 400 ? 0.55 : 0.9;
    context.fillStyle = c.decode;
    for (const tick of this.ticks) context.fillRect(x(tick) - 0.75, 5, 1.5, base - 5);
    context.globalAlpha = 1;
    context.fillStyle = c.soft;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "left";
    context.fillText("sent", 6, height - 3);
    context.textAlign = "right";
    context.fillText(time(now), width - 6, height - 3);
    const place = Math.min(Math.max(x(first), 60), width - 90);
    context.textAlign = "center";
    if (this.ticks.length) context.fillText(`first ${time(first)}`, place, height - 3);
  }
}
