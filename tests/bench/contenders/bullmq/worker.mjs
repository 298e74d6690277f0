// BullMQ's workers: as many as the command line says, or one; after it how many jobs each runs at once.

import { openSync, writeSync } from "node:fs";
import { Worker } from "bullmq";

const journal = openSync(process.env.BENCH_JOURNAL, "a");

/** Returns the time in s since the epoch: finer than Date, and never off by more than the fraction that Date lacks. */
function time() {
  const ms = Date.now();
  return Math.min(Math.max(performance.timeOrigin + performance.now(), ms), ms + 1) / 1e3;
}

async function arrive(job) {
  const record = Buffer.alloc(8);
  record.writeDoubleLE(time() - job.data.due);
  writeSync(journal, record);
}

const options = process.argv[3] ? { concurrency: Number(process.argv[3]) } : {};
for (let left = Number(process.argv[2] ?? 1); left > 0; left--) {
  const worker = new Worker("bench", arrive, { connection: { url: process.env.BENCH_SERVER }, ...options });
  worker.on("error", console.error);
}
