// What a script adds to the pages: local times, live figures, the chart, the theme. All actions work without it.

import { forInput, localize, setNow, tick, zone } from "./format.js";
import { keepFresh, say } from "./live.js";
import { beginChart } from "./chart.js";
import { beginSearch } from "./search.js";

const root = document.documentElement;

function beginTimes() {
  setNow(root.dataset.now);
  localize(document);
  for (const place of document.querySelectorAll("[data-zone]")) place.textContent = zone();
  for (const input of document.querySelectorAll('input[type="datetime-local"]')) {
    if (input.dataset.utc) input.value = forInput(input.dataset.utc);
    // The server reads UTC.
    input.form.addEventListener("formdata", ({ formData }) => {
      if (input.value) formData.set(input.name, new Date(input.value).toISOString());
    });
  }
  setInterval(() => { if (!document.hidden) tick(document); }, 1000);
}

function beginTheme() {
  const button = document.querySelector("[data-theme-switch]");
  const themes = ["", "light", "dark"], names = { "": "Auto", light: "Light", dark: "Dark" };
  const path = new URL(root.dataset.base, document.baseURI).pathname;
  const show = () => {
    const theme = root.dataset.theme ?? "";
    button.textContent = names[theme];
    button.setAttribute("aria-label", `Theme: ${names[theme]}`);
  };
  button.addEventListener("click", () => {
    const theme = themes[(themes.indexOf(root.dataset.theme ?? "") + 1) % themes.length];
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    document.cookie = `delayq-theme=${theme}; path=${path}; max-age=${theme ? 31_536_000 : 0}; samesite=lax`;
    show();
    say(`Theme: ${names[theme]}`);
  });
  button.hidden = false;
  show();
}

// `delayq demo --serve` prints its token behind the address, in the part that browsers keep to themselves. It is only
// put into the form: a link of somebody else logs nobody in.
function beginLogin() {
  const field = document.querySelector('input[name="token"]');
  if (!field || !location.hash.startsWith("#dq_")) return;
  field.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname + location.search);
}

beginTimes();
beginTheme();
beginLogin();
beginSearch();
const chart = beginChart();
keepFresh(chart ? [chart] : []);
