// Numbers, durations and times as the server writes them, in the browser's own zone.

export const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const UNITS = [[86400, "d"], [3600, "h"], [60, "m"]];
export const two = (n) => String(n).padStart(2, "0");

/** Redis's clock minus this computer's, ms. The page says it when it comes. */
let ahead = 0;
export const setNow = (ms) => { if (ms) ahead = Number(ms) - Date.now(); };
export const now = () => Date.now() + ahead;

export const number = (n) => n.toLocaleString("en-US");

/** A duration by its two largest units: "3h 12m". Mirrors celery_ext.delays.durations.in_words. */
export function words(seconds) {
  let left = Math.abs(seconds);
  left = left < 10 ? Math.round(left * 10) / 10 : Math.round(left);
  const tenths = Math.abs(seconds) < 10;
  const parts = [];
  for (const [size, unit] of UNITS) {
    if (left >= size) {
      parts.push(`${Math.floor(left / size)}${unit}`);
      left %= size;
    }
  }
  if (!parts.length || (parts.length === 1 && parts[0].endsWith("m"))) {
    parts.push(tenths ? `${left.toFixed(1)}s` : `${left}s`);
  }
  const text = parts.slice(0, 2).join(" ");
  return seconds >= 0 ? `in ${text}` : `${text} ago`;
}

/** How far away a due time is. The figures are up to 2 s old, so that what has just left is still "now". */
export function until(ms) {
  const seconds = (Number(ms) - now()) / 1000;
  return seconds > -3 && seconds < 0.5 ? "now" : words(seconds);
}

/** A time in the browser's zone: of today "18:04:05", else "23 Nov, 18:04". */
export function moment(iso) {
  const at = new Date(iso), today = new Date(now());
  if (at.toDateString() === today.toDateString()) {
    return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  }
  const year = at.getFullYear() === today.getFullYear() ? "" : ` ${at.getFullYear()}`;
  return `${at.getDate()} ${MONTHS[at.getMonth()]}${year}, ${two(at.getHours())}:${two(at.getMinutes())}`;
}

/** A time as an input of type datetime-local has it. */
export function forInput(iso) {
  const at = new Date(iso);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day}T${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";

/** Writes all times below an element in the browser's zone, and how far away they are. */
export function localize(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    if (time.dateTime) time.textContent = moment(time.dateTime);
  }
  tick(root);
}

export function tick(root) {
  for (const element of root.querySelectorAll("[data-until]")) {
    if (element.dataset.until) element.textContent = until(element.dataset.until);
  }
}
