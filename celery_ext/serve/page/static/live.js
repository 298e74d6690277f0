// Keeps the figures of a page fresh: asks for the page again every 2 s and takes over what has changed.

import { localize, moment, setNow } from "./format.js";

const EVERY_MS = 2000;
/** A page that takes long to come is asked for less often: it gets at most this share of the server's time. */
const SHARE = 0.1;
const PARTS = "[data-live-part]", ROWS = "[data-live-rows]";
const base = new URL(document.documentElement.dataset.base, document.baseURI);

/** Tells a screen reader something. */
export function say(text) {
  const place = document.querySelector("[data-say]");
  if (place.textContent !== text) place.textContent = text;
}

/** Returns the address of a path below the mount. */
export const address = (path) => new URL(path, base);

export async function fetchFresh(url, accept, signal) {
  const response = await fetch(url, { headers: { Accept: accept, "X-Live": "1" }, cache: "no-store", signal });
  if (response.status === 401 || response.redirected) location.reload();
  if (!response.ok) throw new Error(`${response.status}`);
  return response;
}

/** Makes `old` look like `fresh`, and leaves alone what is equal: focus, selection and scroll positions stay. */
export function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh.cloneNode(true));
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  if (fresh.matches(ROWS)) morphRows(old, fresh);
  else morphChildren(old, fresh);
}

function morphChildren(old, fresh) {
  const wanted = [...fresh.childNodes];
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
  wanted.forEach((child, at) => {
    if (at < old.childNodes.length) morph(old.childNodes[at], child);
    else old.append(child.cloneNode(true));
  });
}

function morphRows(old, fresh) {
  const known = new Map([...old.children].map((row) => [row.dataset.key, row]));
  let place = old.firstElementChild;
  for (const row of fresh.children) {
    const found = known.get(row.dataset.key);
    known.delete(row.dataset.key);
    if (!found) old.insertBefore(row.cloneNode(true), place);
    else {
      if (found !== place) old.insertBefore(found, place);
      morph(found, row);
      place = found.nextElementSibling;
    }
  }
  for (const row of known.values()) row.remove();
}

function take(html, others) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  setNow(fresh.documentElement.dataset.now);
  localize(fresh);
  for (const kind of [PARTS, ROWS]) {
    const places = [...document.querySelectorAll(kind)], found = [...fresh.querySelectorAll(kind)];
    if (kind === ROWS && places.length !== found.length) location.reload(); // the first queue, or the last one gone
    places.forEach((place, at) => { if (found[at]) morph(place, found[at]); });
  }
  for (const other of others) other(fresh);
  if (document.title !== fresh.title && fresh.title) document.title = fresh.title;
}

/** Begins to ask. `others` are functions that take over more from the fresh page. */
export function keepFresh(others) {
  const lamp = document.querySelector("[data-live]");
  if (!lamp || !document.querySelector(`${PARTS}, ${ROWS}`)) return;
  const text = lamp.firstElementChild;
  let lost = false, timer = 0, asking = null, tookMs = 0;

  const show = (state, words) => { lamp.dataset.state = state; text.textContent = words; };
  const asks = async () => {
    clearTimeout(timer);
    if (document.hidden || asking) return;
    asking = AbortSignal.timeout(10_000);
    const begun = performance.now();
    try {
      const response = await fetchFresh(location.href, "text/html", asking);
      take(await response.text(), others);
      show("on", `updated ${moment(new Date().toISOString())}`);
      if (lost) say("Connected again");
      lost = false;
    } catch {
      show("lost", "connection lost");
      if (!lost) say("Connection lost. The figures are old.");
      lost = true;
    } finally {
      asking = null;
      tookMs = performance.now() - begun;
      if (!document.hidden) timer = setTimeout(asks, Math.max(EVERY_MS, lost ? 0 : tookMs / SHARE));
    }
  };
  lamp.hidden = false;
  show("on", `updated ${moment(new Date().toISOString())}`);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { clearTimeout(timer); show("", "paused"); } else asks();
  });
  timer = setTimeout(asks, EVERY_MS);
}
