// A replay at a pace: sends the form again and again, says how far it is, and can be stopped.

import { number } from "./format.js";
import { say } from "./live.js";

async function reason(response) {
  const answer = new DOMParser().parseFromString(await response.text(), "text/html");
  return answer.querySelector(".note.bad")?.textContent ?? `${response.status}`;
}

async function replay(form, panel) {
  const [words, bar, stop] = panel.children, of = Number(form.dataset.paced), data = new URLSearchParams(new FormData(form));
  let page, sent = 0, stopped = false;
  const show = () => {
    words.textContent = `${number(sent)} of ${number(of)} sent back`;
    bar.value = sent;
  };
  stop.addEventListener("click", () => {
    stopped = stop.disabled = true;
    stop.textContent = "Stopping …";
  });
  for (const button of document.querySelectorAll("form button")) button.disabled = true;
  panel.hidden = false;
  show();
  say(words.textContent);
  try {
    do {
      const response = await fetch(form.action, { method: "POST", body: data });
      if (!response.ok) throw new Error(await reason(response));
      page = new URL(response.url);
      sent += Number(page.searchParams.get("replayed"));
      data.set("until", page.searchParams.get("until") ?? "");
      show();
    } while (page.searchParams.has("more") && !stopped);
  } catch (error) {
    words.textContent = `It ended early, after ${number(sent)} of ${number(of)}: ${error.message}`;
    stop.hidden = true;
    say(words.textContent);
    return;
  }
  if (sent) page.searchParams.set("replayed", sent);
  page.searchParams.delete("none");
  location.assign(page);
}

const form = document.querySelector("[data-paced]");
form?.addEventListener("submit", (event) => {
  if (!form.elements.rate.value || event.submitter?.hasAttribute("formaction")) return; // at once; or a drop
  event.preventDefault();
  replay(form, document.querySelector("[data-pacing]"));
});
