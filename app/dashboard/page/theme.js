// Light, dark, or as the system says; remembered in this browser if it lets us.

import { byId, forgetColours, say } from "./dom.js";

const NEXT = { auto: "light", light: "dark", dark: "auto" };
const NAMES = { auto: "Auto", light: "Light", dark: "Dark" };

export function startTheme(redraw) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let choice = recall();
  const apply = () => {
    document.documentElement.dataset.theme = choice === "auto" ? (system.matches ? "dark" : "light") : choice;
    say(byId("theme"), NAMES[choice]);
    byId("theme").setAttribute("aria-label", `Theme: ${choice === "auto" ? "as the system" : choice}`);
    forgetColours();
    redraw();
  };
  system.addEventListener("change", apply);
  byId("theme").addEventListener("click", () => {
    choice = NEXT[choice];
    try { localStorage.setItem("mocker-theme", choice); } catch { /* A private window may refuse. */ }
    apply();
  });
  apply();
}

function recall() {
  try {
    const kept = localStorage.getItem("mocker-theme");
    return kept in NEXT ? kept : "auto";
  } catch {
    return "auto";
  }
}
