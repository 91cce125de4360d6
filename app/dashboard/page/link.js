// Talks to the server: keys in memory, JSON calls, and the event stream read by hand so that a key can be sent.

/** The server wants a key and none was given. */
class KeyWanted extends Error {}

const keys = { admin: "", api: "" };
let askForKey = async () => false;

export function setKeys(admin, api) {
  keys.admin = admin;
  keys.api = api;
}

/** `ask(why)` shows the key dialog; resolves to whether keys were given. */
export function onKeyWanted(ask) {
  let asking = null;
  askForKey = (why) => (asking ??= ask(why).finally(() => { asking = null; }));
}

/** The page may stand behind a proxy's path: everything is relative to where it was loaded from. */
const base = location.pathname.replace(/\/dashboard\/?$/, "");

function headers(path, extra = {}) {
  const key = path.startsWith("/admin") ? keys.admin : keys.api || keys.admin;
  return key ? { ...extra, Authorization: `Bearer ${key}` } : extra;
}

/** fetch with the right key; asks for one once if the server wants one. */
export async function call(path, { method = "GET", body, signal } = {}) {
  for (let attempt = 0; ; attempt += 1) {
    const response = await fetch(base + path, {
      method,
      signal,
      headers: headers(path, body === undefined ? {} : { "Content-Type": "application/json" }),
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (response.status !== 401 || attempt === 2) return response;
    await response.body?.cancel();
    if (!(await askForKey(path.startsWith("/admin") ? "admin" : "api"))) throw new KeyWanted("The server wants a key.");
  }
}

export async function getJson(path, options) {
  const response = await call(path, options);
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new Error(errorText(body) ?? `${path} answered ${response.status}.`);
  return body;
}

export function errorText(body) {
  const error = body?.error;
  return typeof error === "string" ? error : error?.message ?? body?.detail ?? null;
}

/** The records of an SSE body, in arrival order, as [event, data]. */
export async function* records(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      const found = rest.split(/\r?\n\r?\n/);
      rest = found.pop();
      for (const record of found) {
        let event = "message";
        const data = [];
        for (const line of record.split(/\r?\n/)) {
          if (line.startsWith("event:")) event = line.slice(6).trim();
          else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
        }
        if (data.length) yield [event, data.join("\n")];
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * The dashboard's feed while the page is visible. A hidden page holds no connection, so the server samples
 * nothing for it. `onFrame(frame)`, `onState("live" | "connecting" | "lost" | "locked" | "asleep")`.
 */
export class Feed {
  constructor(path, onFrame, onState) {
    this.path = path;
    this.onFrame = onFrame;
    this.onState = onState;
    this.abort = null;
    this.waitMs = 250;
    document.addEventListener("visibilitychange", () => this.follow());
  }

  follow() {
    if (document.hidden) {
      this.abort?.abort();
      this.abort = null;
      this.onState("asleep");
    } else if (this.abort === null) {
      this.abort = new AbortController();
      this.run(this.abort.signal);
    }
  }

  async run(signal) {
    while (!signal.aborted) {
      this.onState("connecting");
      try {
        const response = await call(this.path, { signal });
        if (!response.ok) throw new Error(`${response.status}`);
        for await (const [event, data] of records(response)) {
          if (signal.aborted) return;
          if (event === "ping") continue;
          this.waitMs = 250;
          this.onState("live");
          this.onFrame(JSON.parse(data), event);
        }
      } catch (error) {
        if (error instanceof KeyWanted) {
          // Asking again and again would help nobody; `follow` begins anew.
          this.abort = null;
          this.onState("locked");
          return;
        }
        // Else the server ended, or is not there: what follows is the same.
      }
      if (signal.aborted) return;
      this.onState("lost");
      await new Promise((wake) => setTimeout(wake, this.waitMs));
      this.waitMs = Math.min(8000, this.waitMs * 2);
    }
  }
}
