// Consumes a queue with Node 18 or later, without packages.
//
//   DELAYQ_URL=http://127.0.0.1:5556 DELAYQ_TOKEN=dq_... node consume.mjs QUEUE

const { DELAYQ_URL, DELAYQ_TOKEN, DELAYQ_LEASE_S = '60', DELAYQ_RETRY_S = '30' } = process.env;
const queue = process.argv[2];
const leaseS = Number(DELAYQ_LEASE_S);
const stopping = new AbortController();
const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

// Your work. An error puts the message back; it comes again after DELAYQ_RETRY_S.
async function work({ task, id, args, kwargs, redelivered, delivery_count }) {
  if (kwargs.fail && !redelivered) throw new Error('not yet');
  await pause(kwargs.seconds ?? 0);
  console.log(`${task} ${id} ${JSON.stringify(args)} done`);
}

async function call(path, body, signal) {
  const answer = await fetch(DELAYQ_URL + path, {
    method: 'POST',
    headers: { Authorization: `Bearer ${DELAYQ_TOKEN}`, 'Content-Type': 'application/json' },
    body: body && JSON.stringify(body),
    signal,
  });
  const found = await answer.json();
  if (answer.ok) return found;
  throw Object.assign(new Error(`${path}: ${found.detail}`), { status: answer.status });
}

async function handle(lease, message) {
  const tags = [message.tag];
  try {
    await work(message);
  } catch (error) {
    console.error(`${message.task} ${message.id}: ${error.message}`);
    await call(`/v1/leases/${lease.id}:release`, { tags, delay: Number(DELAYQ_RETRY_S) });
    return;
  }
  await call(`/v1/leases/${lease.id}:ack`, { tags });
}

for (const name of ['SIGTERM', 'SIGINT']) process.once(name, () => stopping.abort());

while (!stopping.signal.aborted) {
  let taken;
  try {
    const path = `/v1/queues/${encodeURIComponent(queue)}:take?wait=20s&max=10&lease=${leaseS}s`;
    taken = await call(path, undefined, stopping.signal);
  } catch (error) {
    if (stopping.signal.aborted) break;
    if (error.status < 500 && error.status !== 429) throw error; // our mistake, such as a wrong token
    await pause(2);
    continue;
  }
  const { lease, messages } = taken;
  if (!lease) continue; // nothing came in time
  // One lease for all: it is extended until the last message is done.
  const extending = setInterval(() => {
    call(`/v1/leases/${lease.id}:extend`, { seconds: leaseS }).catch((error) => console.error(error.message));
  }, leaseS * 500);
  const done = await Promise.allSettled(messages.map((message) => handle(lease, message)));
  clearInterval(extending);
  // 410: the lease ended before, so the message comes again.
  for (const { reason } of done) if (reason) console.error(reason.message);
}
