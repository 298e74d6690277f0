// BullMQ's producer.

import { Queue } from "bullmq";
import { PAYLOAD, serve } from "./program.mjs";

console.log = console.error; // a library that prints does not disturb

/** Jobs added one at a time, and 1,000 at a time, until Node.js has compiled what it does most. */
const WARM_ONE = 5_000;
const WARM_BULK = 10;

const connection = { url: process.env.BENCH_SERVER };

/** Returns a job. BullMQ counts in whole ms: rounded up, so that none begins too early. */
function job(due) {
  const delay = Math.ceil(due * 1e3) - Date.now();
  return { name: "arrive", data: { due, payload: PAYLOAD }, opts: delay > 0 ? { delay } : {} };
}

/** Returns what a producer does, through the public API. */
function producer(queue) {
  return {
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
  };
}

/** Adds to a queue that is then deleted: a producer that has just started is not usual. */
async function warm() {
  const queue = new Queue("warm", { connection });
  const { one, bulk } = producer(queue);
  const due = Date.now() / 1e3 + 3600;
  for (let left = WARM_BULK; left > 0; left--) await bulk(Array(1_000).fill(due));
  for (let left = WARM_ONE; left > 0; left--) await one(due);
  await queue.obliterate({ force: true });
  await queue.close();
}

await warm();
await serve(producer(new Queue("bench", { connection })));
