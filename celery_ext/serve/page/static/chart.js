// The chart of what comes due: bars over time, past ones apart, with a brush that chooses a range.

import { MONTHS, forInput, moment, number, two } from "./format.js";

const PARTS = 120;

/** Where a log scale has lines: at powers of ten, and between them where there are few. */
function logSplits(most) {
  const steps = most < 200 ? [1, 2, 5] : [1];
  const found = [0];
  for (let ten = 1; ten <= most; ten *= 10) found.push(...steps.map((step) => step * ten).filter((n) => n <= most));
  return found;
}

export class DueChart {
  constructor(place) {
    this.place = place;
    this.at = document.querySelector("[data-at]");
    this.summary = this.at.textContent;
    this.log = false;
    this.chosen = null;
    this.held = false; // while somebody draws a range
    this.parts = {};
    this.plot = null;
  }

  /** Shows what the server counted: a number for what is overdue, one for each part of the span, one for the rest. */
  show(text) {
    const { from, span, all, parts } = JSON.parse(text);
    const width = span / PARTS;
    this.span = span;
    this.from = from / 1000;
    this.parts = parts;
    const overdue = all[0], later = all[all.length - 1];
    this.times = Array.from({ length: PARTS + 1 }, (_, at) => this.from + (at - 1) * width);
    this.total = all.slice(0, -1).map((n, at) => (at ? n : 0));
    const past = Array(PARTS + 1).fill(null);
    past[0] = overdue || null;
    this.data = [this.times, this.total, this.part(), past];
    const many = this.total.reduce((sum, n) => sum + n, 0);
    this.summary = `${number(many)} ${many === 1 ? "task" : "tasks"} due in the next ${
      this.span > 86400 ? "30 days" : this.span > 3600 ? "day" : "hour"}`;
    const rest = document.querySelector(".chart-foot .rest");
    rest.replaceChildren();
    if (overdue) {
      const dot = document.createElement("i");
      dot.className = "dot warn";
      rest.append(dot, `${number(overdue)} overdue · `);
    }
    rest.append(`${number(later)} later`);
    let empty = this.place.querySelector(".empty-chart");
    if (many || overdue) empty?.remove();
    else if (!empty) {
      empty = document.createElement("div");
      empty.className = "empty-chart";
      empty.textContent = "Nothing comes due in this time.";
      this.place.append(empty);
    }
    if (this.plot) this.plot.setData(this.data);
    else this.draw();
    this.tell();
  }

  /** The part of one queue, which the pointer is on. */
  part() {
    const row = this.parts[this.chosen];
    return row ? row.slice(0, -1).map((n, at) => (at ? n : null)) : this.times.map(() => null);
  }

  choose(queue) {
    if (this.chosen === queue || !this.plot) return;
    this.chosen = queue;
    this.data[2] = this.part();
    this.plot.setData(this.data, false);
    this.plot.redraw(true);
  }

  tone(name) {
    return getComputedStyle(this.place.querySelector(`.tone.${name}`)).color;
  }

  label(seconds) {
    const at = new Date(seconds * 1000);
    const clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
    const day = `${at.getDate()} ${MONTHS[at.getMonth()]}`;
    if (this.span > 86400) return day;
    return clock === "00:00" ? day : clock;
  }

  tell() {
    const at = this.plot?.cursor.idx;
    if (at === null || at === undefined) { this.at.textContent = this.summary; return; }
    if (at === 0) { this.at.textContent = `${number(this.data[3][0] || 0)} overdue`; return; }
    const [start, end] = [this.times[at], this.times[at] + this.span / PARTS].map((s) => moment(new Date(s * 1000)));
    const rows = Object.entries(this.parts).map(([queue, row]) => [queue, row[at]]).filter((row) => row[1]);
    rows.sort((a, b) => b[1] - a[1]);
    const most = rows.slice(0, 3).map(([queue, n]) => `${queue} ${number(n)}`).join(", ");
    const shown = rows.length ? `: ${most}${rows.length > 3 ? ", …" : ""}` : "";
    this.at.textContent = `${start} – ${end}  ${number(this.total[at])} due${shown}`;
  }

  draw() {
    const { uPlot } = window;
    const brush = "brush" in this.place.dataset;
    const bars = uPlot.paths.bars({ size: [0.82, 48], align: 1 });
    const axis = { stroke: () => this.tone("axis"), font: "12px system-ui, sans-serif", ticks: { show: false } };
    const serie = (fill) => ({ fill, stroke: fill, width: 0, paths: bars, points: { show: false } });
    this.plot = new uPlot({
      ...this.size(),
      legend: { show: false },
      padding: [10, 14, 0, 0],
      cursor: { y: false, points: { show: false }, drag: { x: brush, y: false, setScale: false }, focus: { prox: -1 } },
      select: { show: brush },
      scales: {
        x: { time: true, range: () => [this.times[0], this.from + this.span] },
        y: { distr: this.log ? 4 : 1, range: (_, __, most) => [0, Math.max(most * 1.04, 1)] },
      },
      axes: [
        { ...axis, size: 26, gap: 4, grid: { show: false }, space: 70, values: (_, splits) => splits.map((s) => this.label(s)) },
        {
          ...axis, space: 42, gap: 6,
          size: (_, texts) => 14 + 7 * Math.max(2, ...(texts ?? []).map((text) => text.length)),
           grid: { stroke: () => this.tone("grid"), width: 1 },
          splits: this.log ? (_, __, ___, most) => logSplits(most) : undefined,
          incrs: [1, 2, 5].flatMap((n) => [1, 10, 100, 1e3, 1e4, 1e5, 1e6].map((m) => n * m)).sort((a, b) => a - b),
          // On a log scale uPlot puts null in place of lines that are too close to the next to have a label.
          values: (_, splits) => splits.map((n) => (n === null ? "" : number(n))),
        },
      ],
      series: [
        {},
        serie(() => this.tone(!this.parts[this.chosen] ? "accent" : "soft")),
        serie(() => this.tone("accent")),
        serie(() => this.tone("warn")),
      ],
      hooks: {
        draw: [() => this.mark()],
        setCursor: [() => this.tell()],
        setSelect: brush ? [(plot) => this.select(plot)] : [],
      },
    }, this.data, this.place);
    this.place.querySelector(".plain")?.remove();
    this.plot.root.setAttribute("role", "img");
    this.plot.root.setAttribute("aria-label", this.summary);
    new ResizeObserver(() => this.plot.setSize(this.size())).observe(this.place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.plot.redraw());
    new MutationObserver(() => this.plot.redraw()).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  }

  size() {
    const style = getComputedStyle(this.place);
    const inner = (all, ...sides) => sides.reduce((left, side) => left - parseFloat(style[side]), all);
    return {
      width: inner(this.place.clientWidth, "paddingLeft", "paddingRight"),
      height: inner(this.place.clientHeight, "paddingTop", "paddingBottom"),
    };
  }

  /** Shows the range that the table is filtered by. */
  mark() {
    const [from, to] = ["from", "to"].map((id) => Date.parse(document.getElementById(id)?.dataset.utc ?? "") / 1000);
    if (this.held || !(from || to) || !("brush" in this.place.dataset)) return;
    const left = Math.max(this.plot.valToPos(from || this.times[0], "x"), 0);
    const right = Math.min(this.plot.valToPos(to || this.from + this.span, "x"), this.plot.bbox.width / devicePixelRatio);
    if (right > left) {
      this.plot.setSelect({ left, width: right - left, top: 0, height: this.plot.bbox.height / devicePixelRatio }, false);
    }
  }

  select(plot) {
    if (plot.select.width < 3) return;
    const width = this.span / PARTS;
    const ends = [plot.select.left, plot.select.left + plot.select.width].map((x) => plot.posToVal(x, "x"));
    const from = this.times[Math.max(Math.floor((ends[0] - this.times[0]) / width), 0)];
    const to = this.times[0] + Math.ceil((ends[1] - this.times[0]) / width) * width;
    const form = document.querySelector("[data-filter]");
    const set = (id, seconds) => {
      const input = document.getElementById(id);
      input.value = seconds === null ? "" : forInput(new Date(seconds * 1000));
    };
    set("from", from < this.from - width / 2 ? null : from); // the bar of what is overdue has no beginning
    set("to", to);
    form.action = form.action.replace(/#.*/, "");
    form.requestSubmit();
  }

  toggleLog(button) {
    this.log = !this.log;
    button.setAttribute("aria-pressed", String(this.log));
    this.plot?.destroy();
    this.plot = null;
    if (this.data) this.draw();
  }
}

/** Draws the chart of the page, if it has one. Returns what keeps it fresh. */
export function beginChart() {
  const place = document.querySelector("[data-chart]");
  if (!place || !window.uPlot) return null;
  const chart = new DueChart(place);
  const [switcher] = document.querySelectorAll("[data-log]");
  switcher.hidden = false;
  switcher.firstElementChild.addEventListener("click", (event) => chart.toggleLog(event.currentTarget));
  const rows = document.querySelector("[data-live-rows]");
  if (rows) {
    const pick = (event) => chart.choose(event.target.closest("tr")?.dataset.key ?? null);
    rows.addEventListener("pointerover", pick);
    rows.addEventListener("focusin", pick);
    rows.addEventListener("pointerleave", () => chart.choose(null));
    rows.addEventListener("focusout", () => chart.choose(null));
  }
  place.addEventListener("pointerdown", () => { chart.held = true; });
  addEventListener("pointerup", () => { chart.held = false; });
  chart.show(place.dataset.due);
  return (fresh) => {
    const found = fresh.querySelector("[data-chart]");
    if (found && !chart.held) chart.show(found.dataset.due);
  };
}
