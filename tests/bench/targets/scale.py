"""What grows with the number of messages that wait in one Redis: each operation beside servers of other sizes."""

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from http.client import HTTPConnection
from statistics import median, quantiles
from time import perf_counter, sleep, time
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import redis
from celery.utils.functional import chunks
from click.testing import CliRunner

from celery_ext import Call, cancel, send_many
from celery_ext.cli import delayq
from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.servers import main_thread_s
from tests.bench.targets.app import BROKER, OURS, TASK, TRANSPORT, make_app
from tests.bench.targets.report import Figure
from tests.bench.targets.serve import serving
from tests.bench.targets.transfer import drain, fill, make_store
from tests.support import ROOT
from tests.support.conditions import until

QUEUE = "celery"
DUE_KEY, BODIES_KEY = (f"delayq:{{{QUEUE}}}:{key}" for key in ("due", "bodies"))
#: Characters of a task's id, which is at the end of a member of the key of due times.
UUID = 36
#: Messages that one call copies, and in how many s from an hour on all are due.
COPIED, SPAN_S = 500, 7 * 86_400
#: Rounds, and what each has on each server: tasks that are published, messages that are due, tasks that are cancelled.
ROUNDS, PUBLISHED, DUE, CANCELLED = 5, 20_000, 20_000, 100
#: Rounds of each thing that is looked at, and of what takes seconds.
LOOKS, STARTS = 20, 3
#: The most that a figure may grow, of that of the smallest size, and that a command may keep Redis busy, in ms.
GROWTH, LONGEST_MS = 1.2, 5
#: Memory of which pages are read: how much, how many, and after how many s in which nobody touches it.
UNTOUCHED, PAGE, READ, IDLE_S = 200_000_000, 4096, 1_000, 4.0
#: What is noted in SLOWLOG, in µs.
SLOW_US = 500
#: The commands of ``delayq`` that read.
COMMANDS = {
    "delayq list, first 20": ["list", QUEUE],
    "delayq list of a day, first 20": ["list", QUEUE, "--due-from", "24h", "--due-to", "48h"],
    "delayq count": ["count", QUEUE],
    "delayq status": ["status"],
}
#: The pages of ``delayq serve``.
PAGES = {
    "overview page": "/",
    "page of the queue": f"/queues/{QUEUE}",
    "/metrics": "/metrics",
    "/scale": f"/scale?queue={QUEUE}&ahead=1h",
}

#: Stores copies of a message, each with an id of its own. KEYS: due, bodies; ARGV: id and body of the message, number
#: of the first copy, how many, due time of the first of all, and how many ms later the next one is due.
_COPY = """
local bodies, dues, parts, from = {}, {}, {}, 1
repeat
  local first, last = string.find(ARGV[2], ARGV[1], from, true)
  parts[#parts + 1], from = string.sub(ARGV[2], from, first and first - 1), (last or 0) + 1
until not first
for number = ARGV[3], ARGV[3] + ARGV[4] - 1 do
  local id = string.format('%08x-0000-4000-8000-%012x', number * 2654435761 % 2 ^ 32, number)
  bodies[#bodies + 1] = id
  bodies[#bodies + 1] = table.concat(parts, id)
  dues[#dues + 1] = string.format('%.3f', ARGV[5] + number * ARGV[6])
  dues[#dues + 1] = id
end
redis.call('HSET', KEYS[2], unpack(bodies))
redis.call('ZADD', KEYS[1], unpack(dues))
"""


#: Looks for what is not there. KEYS: bodies, due; ARGV: how often. Returns how long it took, in µs.
_LOOK = """
local begun = redis.call('TIME')
for _ = 1, ARGV[1] do
  redis.call('HEXISTS', KEYS[1], '')
  redis.call('ZSCORE', KEYS[2], '')
end
local ended = redis.call('TIME')
return (ended[1] - begun[1]) * 1000000 + ended[2] - begun[2]
"""
#: How often one call looks.
LOOKED = 10_000


class Side:
    """A server on which so many messages wait.

    Args:
        server: The server.
        size: How many.
    """

    def __init__(self, server: PrivateRedis, size: int) -> None:
        self.url, self.size, self.client = server.url, size, redis.Redis(port=server.port)
        self.app, self.store = make_app(server.url, OURS), make_store(redis.Redis(port=server.port), "hash")
        self._longest: dict[str, list[float]] = {}

    def fill(self) -> None:
        """Publishes a task, and lets Redis copy it: no publisher makes as many in the time."""
        client: Any = self.client
        self.publish(1)
        [(identity, body)] = client.hgetall(BODIES_KEY).items()
        script, from_ms = client.register_script(_COPY), time() * 1000 + 3_600_000
        for first in range(1, self.size, COPIED):
            count = min(COPIED, self.size - first)
            script([DUE_KEY, BODIES_KEY], [identity, body, first, count, from_ms, SPAN_S * 1000 / self.size])
        client.config_set("slowlog-log-slower-than", SLOW_US)
        client.config_set("slowlog-max-len", 10_000)

    def settle(self) -> tuple[float, float]:
        """Lets Redis end what it began when its tables grew for the last time: each look moves one of their buckets.

        Returns:
            How long a look takes in µs, at first and in the end; each is one in a hash and one in a sorted set.
        """
        look = self.client.register_script(_LOOK)
        waiting: Any = self.client.hlen(BODIES_KEY)
        buckets = 1 << (waiting.bit_length() - 1)  # that the tables had before
        took_us: list[Any] = [look([BODIES_KEY, DUE_KEY], [LOOKED]) for _ in range(0, buckets + LOOKED, LOOKED)]
        return took_us[0] / LOOKED, took_us[-1] / LOOKED

    def publish(self, count: int) -> None:
        """Publishes tasks with one number as argument."""
        calls = (Call((1_790_000_000.123456,), countdown=3600 + random.random() * SPAN_S) for _ in range(count))
        send_many(self.app, self.app.tasks[TASK], calls)

    def copy(self, count: int) -> None:
        """Stores copies of what waits by the two commands that are the least for it, an HSET and a ZADD each."""
        client: Any = self.client
        [member] = client.zrandmember(DUE_KEY, 1)
        identity = member[-UUID:]
        body = client.hget(BODIES_KEY, identity)
        from_ms = time() * 1000 + 3_600_000
        for page in chunks(iter(range(count)), COPIED):
            pipe = client.pipeline(transaction=False)
            for _ in page:
                copied = str(uuid4()).encode()
                pipe.hset(BODIES_KEY, copied, body.replace(identity, copied))
                pipe.zadd(DUE_KEY, {copied: from_ms + random.random() * SPAN_S * 1000})
            pipe.execute()

    def run(self, name: str, call: Callable[[], object]) -> float:
        """Returns how long a call takes, in ms. Notes the longest command that it has given Redis."""
        client: Any = self.client
        client.slowlog_reset()
        begun = perf_counter()
        call()
        took_ms = (perf_counter() - begun) * 1000
        slow_us = [each["duration"] for each in client.slowlog_get(10_000) if b"SLOWLOG" not in each["command"]]
        self._longest.setdefault(name, []).append(max(slow_us, default=SLOW_US) / 1000)
        return took_ms

    def longest_ms(self) -> dict[str, float]:
        """Returns the longest command of each step, in a round as most are: others may use the processor, too."""
        return {name: median(found) for name, found in self._longest.items()}

    def close(self) -> None:
        """Closes the connections."""
        self.app.close()
        self.store.close()
        self.client.close()


#: Figures by size.
Found = dict[int, list[float]]


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Fills a server for each size, and measures each thing on all of them in turns."""
    with ExitStack() as stack:
        sides = []
        for size in (10_000, 100_000) if quick else (100_000, 1_000_000, 10_000_000):
            side = Side(stack.enter_context(PrivateRedis()), size)
            stack.callback(side.close)
            side.fill()
            sides.append(side)
        yield from compare(sides)
    yield from _untouched()


def compare(sides: Sequence[Side]) -> Iterator[Figure]:
    """Measures servers that are full, of the least first. In the end nothing waits there."""
    for side in sides:
        growing_us, grown_us = side.settle()
        yield Figure(f"two looks while Redis's tables grow, {side.size:,} waiting", growing_us, "µs")
        yield Figure(f"two looks, {side.size:,} waiting", grown_us, "µs")
        used: Any = side.client.info("memory")
        yield Figure(f"memory, {side.size:,} waiting", used["used_memory"] / side.size, "bytes/msg")
    yield from _published(sides)
    yield from _transferred(sides)
    yield from _cancelled(sides)
    runner = CliRunner()
    for name, arguments in COMMANDS.items():
        commands = {side: partial(_command, runner, side, *arguments) for side in sides}
        yield from _figures(name, "ms", _times_ms(name, LOOKS, commands), note="without the start of Python")
    doctors = {side: partial(_command, runner, side, "doctor") for side in sides}
    name = "delayq doctor"
    yield from _figures(name, "ms", _times_ms(name, STARTS, doctors), note="waits 2 s for workers that answer")
    with ExitStack() as stack:
        served = {side: stack.enter_context(serving(side.url)) for side in sides}
        for name, path in PAGES.items():
            pages = {side: partial(_page, url, path, secret) for side, (url, secret, _) in served.items()}
            yield from _figures(name, "ms", _times_ms(name, LOOKS, pages))
    name = "start of a worker until it is ready"
    yield from _figures(name, "ms", _times_ms(name, STARTS, {side: partial(_start, side) for side in sides}))
    yield from _saved(sides)
    purges = {side: partial(side.store.queues.purge, QUEUE) for side in sides}
    name = "purge"
    yield from _figures(name, "ms", {side.size: [side.run(name, purges[side])] for side in sides}, bound=False)
    for name, longest_ms in sides[-1].longest_ms().items():
        note = f"where {sides[-1].size:,} wait; median of the rounds' longest"
        yield Figure(f"longest command, {name}", longest_ms, "ms", LONGEST_MS, note=note)


def _figures(
    name: str, unit: str, found: Found, note: str = "", *, at_least: bool = False, bound: bool = True
) -> Iterator[Figure]:
    """Yields the median of each size, and how it has grown since the smallest."""
    note = f"median of {len(next(iter(found.values())))} rounds" + (f"; {note}" if note else "")
    values = {size: median(each) for size, each in found.items()}
    first, *larger = values
    for size, value in values.items():
        yield Figure(f"{name}, {size:,} waiting", value, unit, note=note)
    for size in larger:
        target = (1 / GROWTH if at_least else GROWTH) if bound else None
        yield Figure(f"{name}, {size:,} : {first:,}", values[size] / values[first], "", target, at_least)


def _times_ms(name: str, rounds: int, calls: Mapping[Side, Callable[[], object]]) -> Found:
    """Returns how long calls take, on each side in turns; a first round does not count."""
    found: Found = {side.size: [] for side in calls}
    for number in range(rounds + 1):
        for side, call in calls.items():
            took_ms = side.run(name, call)
            if number:
                found[side.size].append(took_ms)
    return found


def _rates(
    name: str,
    count: int,
    sides: Sequence[Side],
    before: Callable[[Side], object],
    run: Callable[[Side], object],
    *,
    bound: bool = True,
) -> Iterator[Figure]:
    """Yields the rate at which something is done with messages, and the CPU time of Redis, on each side in turns."""
    rates: Found = {side.size: [] for side in sides}
    cpu_us: Found = {side.size: [] for side in sides}
    for _ in range(ROUNDS):
        for side in sides:
            before(side)
            redis_s = main_thread_s(side.client)
            took_ms = side.run(name, partial(run, side))
            rates[side.size].append(count / took_ms * 1000)
            cpu_us[side.size].append((main_thread_s(side.client) - redis_s) / count * 1e6)
    yield from _figures(name, "msg/s", rates, f"{count:,} a round", at_least=True, bound=bound)
    yield from _figures(f"{name}, CPU time of Redis", "µs/msg", cpu_us, bound=bound)


def _published(sides: Sequence[Side]) -> Iterator[Figure]:
    """Publishes by ``send_many`` of one process, and by Redis's commands alone, while Redis's tables do not grow."""
    yield from _rates("publish", PUBLISHED, sides, Side.settle, lambda side: side.publish(PUBLISHED))
    yield from _rates("HSET, ZADD alone", PUBLISHED, sides, Side.settle, lambda side: side.copy(PUBLISHED), bound=False)


def _transferred(sides: Sequence[Side]) -> Iterator[Figure]:
    """Transfers messages that are due, while the others wait on and Redis's tables do not grow."""

    def offer(side: Side) -> None:
        side.client.unlink(QUEUE)
        fill(side.store, DUE, QUEUE)
        side.settle()

    yield from _rates("transfer", DUE, sides, offer, lambda side: drain(side.store, DUE, QUEUE))


def _cancelled(sides: Sequence[Side]) -> Iterator[Figure]:
    """Cancels tasks that wait somewhere in the queue."""
    found: Found = {side.size: [] for side in sides}
    for _ in range(ROUNDS + 1):
        for side in sides:
            members: Any = side.client.zrandmember(DUE_KEY, CANCELLED)
            for identity in (member[-UUID:].decode() for member in members):
                found[side.size].append(side.run("cancel by id", partial(cancel, side.app, identity)))
    found = {size: each[CANCELLED:] for size, each in found.items()}  # the first ones warm up
    yield from _figures("cancel by id", "ms", found)
    slow = {size: [quantiles(each, n=100)[98]] for size, each in found.items()}
    yield from _figures("cancel by id, 99 % within", "ms", slow, bound=False)


def _command(runner: CliRunner, side: Side, *arguments: str) -> None:
    result = runner.invoke(delayq, ["--broker", side.url, *arguments])
    if result.exit_code and arguments[0] != "doctor":  # which finds that no worker runs
        raise RuntimeError(result.output)


def _page(url: str, path: str, secret: str) -> None:
    with closing(HTTPConnection(urlsplit(url).netloc)) as connection:
        connection.request("GET", path, headers={"Authorization": f"Bearer {secret}"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {answer.reason}")
        answer.read()


def _start(side: Side) -> None:
    """Starts a worker, and kills it when it is ready."""
    command = ["celery", "-A", "tests.bench.targets.app", "worker", "-l", "INFO", "-P", "threads", "--without-mingle"]
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        env={**os.environ, BROKER: side.url, TRANSPORT: OURS, "PYTHONWARNINGS": "ignore"},
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stderr is not None
        if not any(line.rstrip().endswith(" ready.") for line in process.stderr):
            raise RuntimeError("the worker has not started")
    finally:
        process.kill()
        process.wait(10)


def _saved(sides: Sequence[Side]) -> Iterator[Figure]:
    """Writes snapshots, one after the other."""
    for side in sides:
        client: Any = side.client
        begun = perf_counter()
        client.bgsave()
        until(partial(_has_saved, client), 900, "the snapshot is written")
        yield Figure(f"BGSAVE, {side.size:,} waiting", perf_counter() - begun, "s")
        fork_ms = client.info("stats")["latest_fork_usec"] / 1000
        yield Figure(f"BGSAVE, pause of its fork, {side.size:,} waiting", fork_ms, "ms")


def _untouched() -> Iterator[Figure]:
    """Reads pages of memory that nobody has touched for some seconds, which virtual machines may put away."""
    memory = bytearray(b"x") * UNTOUCHED
    pages = [random.randrange(0, UNTOUCHED, PAGE) for _ in range(READ)]
    for when, idle_s in (("at once", 0.0), (f"{IDLE_S:.0f} s later", IDLE_S)):
        sleep(idle_s)
        begun = perf_counter()
        sum(memory[at] for at in pages)
        yield Figure(f"{READ:,} pages of memory, read {when}", (perf_counter() - begun) * 1000, "ms")


def _has_saved(client: Any) -> bool:
    return not client.info("persistence")["rdb_bgsave_in_progress"]
