// BullMQ's producer.

import { Queue } from "bullmq";
import { PAYLOAD, serve } from "./program.mjs";

console.log = console.error; // a library that prints does not disturb

const queue = new Queue("bench", { connection: { url: process.env.BENCH_SERVER } });

/** Returns a job. BullMQ counts in whole ms: rounded up, so that none begins too early. */
function job(due) {
  const delay = Math.ceil(due * 1e3) - Date.now();
  return { name: "arrive", data: { due, payload: PAYLOAD }, opts: delay > 0 ? { delay } : {} };
}

await serve({
  async one(due) {
    const { name, data, opts } = job(due);
    return (await queue.add(name, data, opts)).id;
  },
  async bulk(dues) {
    return (await queue.addBulk(dues.map(job))).map((each) => each.id);
  },
  async cancel(id) {
    if ((await queue.remove(id)) !== 1) throw new Error(`${id} was not removed`);
  },
  waiting() {
    return queue.getDelayedCount();
  },
});
