// A search as a stream: rows appear as they are found, with how far it is, and can be stopped.

import { moment, number, until } from "./format.js";
import { address, say } from "./live.js";

async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    text += value ?? "";
    const parts = text.split("\n");
    text = parts.pop();
    for (const part of parts) if (part) yield JSON.parse(part);
    if (done) break;
  }
  if (text) yield JSON.parse(text);
}

function row(template, task) {
  const line = template.content.firstElementChild.cloneNode(true);
  const queue = line.querySelector("[data-queue]");
  const [tick, when, name, id, args, retries, priority] = [...line.children].filter((cell) => cell !== queue);
  tick.firstElementChild.value = task.id;
  tick.firstElementChild.setAttribute("aria-label", `Tick ${task.id}`);
  const [time, left, tier] = when.children;
  tier.hidden = task.tier !== "journal";
  time.dateTime = time.title = task.due;
  time.textContent = moment(task.due);
  left.dataset.until = Date.parse(task.due);
  left.textContent = until(Date.parse(task.due));
  const link = name.firstElementChild;
  const path = /^(\.{1,2}$)|[/\\]/.test(task.id) ? `tasks?id=${encodeURIComponent(task.id)}` : `tasks/${encodeURIComponent(task.id)}`;
  link.href = address(path);
  if (queue) {
    queue.firstElementChild.href = address(`queues?name=${encodeURIComponent(task.queue)}`);
    queue.firstElementChild.firstElementChild.textContent = task.queue;
  }
  link.firstElementChild.textContent = task.task ?? "no task";
  id.firstElementChild.textContent = task.id;
  args.textContent = args.title = [task.argsrepr, task.kwargsrepr].filter((text) => text && text !== "{}").join(" ");
  if (task.last_error) {
    const error = document.createElement("span");
    error.className = "error";
    error.textContent = error.title = task.last_error.split("\n")[0];
    args.append(error);
  }
  retries.textContent = number(task.retries);
  priority.textContent = number(task.priority);
  return line;
}

export function beginSearch() {
  const form = document.querySelector("[data-filter]");
  form?.addEventListener("formdata", ({ formData }) => {
    if (["task", "q", "retried"].some((name) => formData.get(name))) formData.set("stream", "1");
    for (const name of ["from", "to", "task", "q"]) if (!formData.get(name)) formData.delete(name);
  });
  const further = document.querySelector("[data-further]"); // the server looks for a short time, a stream to the end
  if (further) {
    const link = new URL(further.href);
    link.searchParams.set("stream", "1");
    further.href = link;
  }
  const table = document.querySelector("[data-tasks][data-search]");
  if (!table) return;
  const here = new URL(location.href);
  here.searchParams.delete("stream"); // a reader with this address may have no script
  history.replaceState(null, "", here);
  search(table);
}

async function search(table) {
  const panel = document.querySelector("[data-searching]"), bar = panel.querySelector("progress");
  const words = panel.querySelector("[data-found]"), stop = panel.querySelector("[data-stop]");
  const template = document.querySelector("[data-row]"), body = table.tBodies[0];
  const looked = document.querySelector("[data-looked]"), next = document.querySelector("[data-next]");
  const control = new AbortController();
  let found = 0, of = 0, at = 0, cursor = null, stopped = false;
  const show = () => { words.textContent = `${number(found)} found, ${number(at)} of ${number(of)} searched`; };
  panel.hidden = false;
  stop.addEventListener("click", () => { stopped = true; control.abort(); });
  try {
    const response = await fetch(address(table.dataset.search), {
      headers: { Accept: "application/x-ndjson" }, signal: control.signal,
    });
    if (!response.ok) throw new Error((await response.json()).detail);
    for await (const line of lines(response)) {
      if (line.task) { body.append(row(template, line.task)); found += 1; }
      if (line.progress) { ({ looked: at, of } = line.progress); bar.max = of || 1; bar.value = at; }
      if (line.error) throw new Error(line.error.detail);
      if (line.done) cursor = line.cursor;
      show();
    }
  } catch (error) {
    if (!stopped) looked.textContent = `The search ended early: ${error.message}`;
  }
  panel.hidden = true;
  const end = `${number(found)} found${stopped ? " before you stopped it" : ""}, ${number(at)} of ${number(of)} searched`;
  looked.textContent = looked.textContent.startsWith("The search ended") ? looked.textContent : end;
  say(end);
  if (next && cursor) {
    const further = new URL(next.href, location.href);
    further.searchParams.set("cursor", cursor);
    further.searchParams.set("stream", "1");
    next.href = further;
    next.hidden = false;
  }
}
