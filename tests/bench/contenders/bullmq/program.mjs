// The program of a producer, as tests/bench/program.py is for those in Python.

import { writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { randomBytes } from "node:crypto";

/** What every task carries besides its due time. */
export const PAYLOAD = randomBytes(490).toString("hex");
/** Messages in one bulk call. */
const BULK = 1_000;
/** How many ids are kept for later cancelling. */
const KEPT = 2_000;

class Program {
  constructor(producer) {
    this.producer = producer;
    this.kept = [];
    this.seen = 0;
  }

  /** Enqueues tasks whose due times are random between two. Returns how long that took, in s. */
  async enqueue({ count, first, last, bulk }) {
    const dues = Array.from({ length: count }, () => first + Math.random() * (last - first));
    const ids = [];
    const begun = performance.now();
    const cpu = process.cpuUsage();
    if (bulk) {
      for (let start = 0; start < count; start += BULK) {
        ids.push(...(await this.producer.bulk(dues.slice(start, start + BULK))));
      }
    } else {
      for (const due of dues) ids.push(await this.producer.one(due));
    }
    const seconds = (performance.now() - begun) / 1e3;
    const { user, system } = process.cpuUsage(cpu);
    const took = { seconds, cpu_s: (user + system) / 1e6, ahead_s: first - Date.now() / 1e3 };
    this.keep(ids);
    return took;
  }

  /** Cancels random tasks of those enqueued, one by one. Returns how long each took, in s. */
  async cancel({ count, within_s }) {
    const times = [];
    const until = performance.now() + within_s * 1e3;
    while (times.length < count && this.kept.length > 0 && performance.now() < until) {
      const id = this.kept.pop();
      const begun = performance.now();
      await this.producer.cancel(id);
      times.push((performance.now() - begun) / 1e3);
    }
    return times;
  }

  /** Keeps a random sample of all ids, those of earlier commands as likely as these. */
  keep(ids) {
    this.seen += ids.length;
    const fresh = this.seen <= KEPT ? ids.length : Math.round((KEPT * ids.length) / this.seen);
    this.kept = sample([...sample(this.kept, KEPT - fresh), ...sample(ids, fresh)], KEPT);
  }

  /** Returns how many messages wait. */
  waiting() {
    return this.producer.waiting();
  }
}

/** Returns as many of these in random order, or all if there are fewer. Shuffles the front of the array in place. */
function sample(all, most) {
  const size = Math.min(most, all.length);
  for (let at = 0; at < size; at++) {
    const other = at + Math.floor(Math.random() * (all.length - at));
    [all[at], all[other]] = [all[other], all[at]];
  }
  return all.slice(0, size);
}

/** Answers commands until stdin ends. */
export async function serve(producer) {
  const program = new Program(producer);
  for await (const line of createInterface({ input: process.stdin })) {
    const { do: name, ...given } = JSON.parse(line);
    let answer;
    try {
      answer = { value: await program[name](given) };
    } catch (error) {
      answer = { error: String(error) };
    }
    writeSync(1, JSON.stringify(answer) + "\n");
  }
  process.exit();
}
