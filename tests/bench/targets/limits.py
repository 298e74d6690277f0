"""What limits by key promise of workers: how many tasks begin, how soon, and what keys cost beside messages without."""

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import sleep, time
from typing import Any
from uuid import uuid4

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.limits import LIMIT_HEADER
from kombu_delayq.transfer.dead import READ_S
from tests.bench.targets import back, limited
from tests.bench.targets.consume import (
    PUSHED,
    QUEUE,
    TAKE,
    TASK_ID,
    WARM,
    Turn,
    Worker,
    redis_us_of,
    template,
    with_due,
)
from tests.bench.targets.report import Figure
from tests.support.conditions import until
from tests.support.workers.held import CONSUMED

#: A limit that only takes turns, one that is never reached, one of a rate, and one of few at once.
LIMITS: dict[str, dict[str, Any]] = {
    "tenant": {},
    "wide": {"running": 1_000},
    "api": {"rate": [50, 50]},
    "account": {"running": 2},
}
#: Tasks that wait where workers take turns, and how often they do.
FILLED, TURNS, KEYS = 60_000, 30, 50
#: Workers that share a rate, and for how long they are watched, in s.
WORKERS, WATCHED_S = 4, 60.0
#: How often a message of another key is pushed, and how long one may be late, in ms.
OTHERS, LATE_MS = 30, 100
#: The key's next task begins after a kill, in s.
MEDIAN_S, LONGEST_S = 4.0, 5.0


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Measures Redis alone, and then workers."""
    yield from limited.measure(server, quick)
    yield from _beside(quick)
    yield from _rate(server, WATCHED_S / 4 if quick else WATCHED_S)
    yield from _other_key(20_000 if quick else 100_000)
    yield from _killed(server, 5 if quick else 20)


def _beside(quick: bool) -> Iterator[Figure]:
    """Lets workers take turns: one without limits, and others with them, whose messages have keys or none."""
    cases: dict[str, tuple[Any, list[str]]] = {
        "no limits": (None, [""]),
        "limits, but no keys": (LIMITS, [""]),
        "keys that take turns": (LIMITS, [f"tenant:{number}" for number in range(KEYS)]),
        "keys with a limit not reached": (LIMITS, [f"wide:{number}" for number in range(KEYS)]),
    }
    targets = dict(zip(cases, (None, 0.99, 0.7, 0.7), strict=True))
    for pool in ("threads", "prefork"):
        found: dict[str, list[Turn]] = {case: [] for case in cases}
        with ExitStack() as opened:
            workers = {case: _worker(opened, pool, limits, keys, FILLED) for case, (limits, keys) in cases.items()}
            for _ in range(TURNS // 3 if quick else TURNS):
                for case, worker in workers.items():
                    found[case].append(worker.turn())
        base = found.pop("no limits")
        yield Figure(f"{pool}, no limits", median(map(_per_s, base)), "tasks/s")
        yield Figure(f"{pool}, no limits, CPU time of Redis", redis_us_of(base), "µs/task")
        for case, turns in found.items():
            name, note = f"{pool}, {case}", f"median of {len(turns)} turns, {KEYS} keys where there are any"
            rates = [_per_s(turn) / _per_s(other) for turn, other in zip(turns, base, strict=True)]
            yield Figure(f"{name}, rate / no limits", median(rates), "", targets[case], True, note)
            yield Figure(f"{name}, CPU time of worker and Redis / no limits", _cpu_us(turns) / _cpu_us(base))
            yield Figure(f"{name}, CPU time of Redis", redis_us_of(turns), "µs/task")


def _worker(opened: ExitStack, pool: str, limits: Any, keys: Sequence[str], filled: int) -> Worker:
    """Starts a worker with a Redis of its own, in which messages of some keys wait. It is stopped once it has begun."""
    server = opened.enter_context(PrivateRedis())
    folder = Path(opened.enter_context(TemporaryDirectory(prefix="delayq-bench-")))
    _push(server, keys, filled)
    worker = Worker(TAKE, server, folder, pool, limits=limits)
    opened.callback(worker.close)
    until(lambda: worker.journal.count() >= WARM, 60, "a worker runs tasks")
    if keys != [""]:
        until(lambda: not worker.client.llen(QUEUE), 60, "all messages are sorted")
    worker.signal(signal.SIGSTOP)
    return worker


def _per_s(turn: Turn) -> float:
    return max(turn.tasks, 1) / turn.took_s


def _cpu_us(turns: Sequence[Turn]) -> float:
    """Returns the CPU time of a worker and of Redis for a task, in µs."""
    return sum(turn.redis_s + turn.worker_s for turn in turns) / sum(turn.tasks for turn in turns) * 1e6


def _push(server: PrivateRedis, keys: Sequence[str], count: int) -> None:
    """Pushes messages of some keys in turn, all of a task that is due at 0."""
    messages = cycle([_keyed(key) for key in keys])
    for start in range(0, count, PUSHED):
        page = [next(messages).replace(TASK_ID, str(uuid4())) for _ in range(min(PUSHED, count - start))]
        server.client().lpush(QUEUE, *page)


def _keyed(key: str) -> str:
    """Returns a message of a key as stock Celery publishes it, with ``TASK_ID`` as each of its ids."""
    return template(headers={LIMIT_HEADER: key}) if key else template()


def _rate(server: PrivateRedis, watched_s: float) -> Iterator[Figure]:
    """Lets workers share a rate."""
    a_second, burst = LIMITS["api"]["rate"]
    client = server.client()
    with ExitStack() as opened:
        workers = []
        for number in range(WORKERS):
            folder = Path(opened.enter_context(TemporaryDirectory(prefix="delayq-bench-")))
            workers.append(Worker(TAKE, server, folder, "threads", "-n", f"{number}@bench", limits=LIMITS))
            opened.callback(workers[-1].close)
        until(lambda: str(client.hvals(CONSUMED)).count('"subscribed": true') == WORKERS, 60, "all workers are up")
        pushed = time()
        _push(server, ["api"], burst + round(a_second * watched_s * 1.5))
        sleep(watched_s + 1)
        begun = sorted(late for worker in workers for late in worker.journal.late_s())
    above = max(number - burst - a_second * (at - pushed) for number, at in enumerate(begun, 1))
    share = sum(at - pushed <= watched_s for at in begun) / (burst + a_second * watched_s)
    name = f"rate of {a_second} a second, burst {burst}, {WORKERS} workers, {watched_s:.0f} s"
    yield Figure(f"{name}: begun, of what may", share, "", 0.97, True)
    yield Figure(f"{name}: begun above it, at most", max(above, 0.0), "tasks", 0)


def _other_key(count: int) -> Iterator[Figure]:
    """Pushes messages of a key behind many of another one."""
    own = _keyed("tenant:b")
    with ExitStack() as opened:
        worker = _worker(opened, "threads", LIMITS, ["tenant:a"], WARM)
        _push(worker.server, ["tenant:a"], count)
        worker.client.lpush(QUEUE, with_due(json.loads(own), time()))
        before, begun = worker.journal.count(), time()
        worker.signal(signal.SIGCONT)
        until(lambda: _late_s(worker), 60, "the message of the other key has begun")
        took_s, after = time() - begun, _place_of_last(worker) - before
        note = f"{after:,} others began before; fetches sort what was pushed before it, some hundred messages each"
        yield Figure(f"one of B behind {count:,} of A, all pushed at once", took_s * 1000, "ms", note=note)
        _push(worker.server, ["tenant:a"], count)
        until(lambda: not worker.client.llen(QUEUE), 60, "all messages are sorted")
        before_each = []
        for _ in range(OTHERS):
            before, seen = worker.journal.count(), len(_late_s(worker))
            worker.client.lpush(QUEUE, with_due(json.loads(own), time()))
            until(partial(_has_seen, worker, seen + 1), 60, "the message of the other key has begun")
            before_each.append(_place_of_last(worker) - before)
            sleep(0.02)
        left = worker.client.zcard(f"delayq:{{{QUEUE}}}:places:parked")
        late_ms = [late * 1000 for late in _late_s(worker)[1:]]
    note = f"{OTHERS} of B, {left:,} of A left; {median(before_each):.0f} of A begin before, at most {max(before_each)}"
    yield Figure(f"one of B behind {count:,} of A, median", median(late_ms), "ms", LATE_MS, note=note)
    yield Figure(f"one of B behind {count:,} of A, longest", max(late_ms), "ms", LATE_MS)


def _late_s(worker: Worker) -> list[float]:
    """Returns how late the tasks began that had a due time, in s."""
    return [late for late in worker.journal.late_s() if late < 600]


def _has_seen(worker: Worker, count: int) -> bool:
    return len(_late_s(worker)) >= count


def _place_of_last(worker: Worker) -> int:
    """Returns how many tasks began before the last one with a due time."""
    return max(at for at, late in enumerate(worker.journal.late_s()) if late < 600)


def _killed(server: PrivateRedis, kills: int) -> Iterator[Figure]:
    """Kills a worker that has all places of a key, as if it were on another machine, while another worker lives."""
    app, client = back.make_app(server.url), server.client()
    client.flushall()
    took_s: list[float] = []
    limits = {"account": LIMITS["account"]}
    with back.worker(server, app, back.LIVES, "threads", "other", limits):
        for _ in range(kills):
            with back.worker(server, app, back.DIES, "threads", back.QUEUE, limits) as doomed:
                client.delete(back.RUNS)
                for _ in range(6):
                    app.send_task("hold", queue=back.QUEUE, headers={LIMIT_HEADER: "account:1"})
                until(lambda: client.llen(back.RUNS) == 2, 30, "a worker has all places")
                until(lambda: str(client.hvals(CONSUMED)).count('"subscribed": true') == 2, 30, "both have subscribed")
                os.killpg(doomed.pid, signal.SIGSTOP)
                for name, about in client.hgetall(CONSUMED).items():
                    client.hset(CONSUMED, name, json.dumps({**json.loads(about), "process": "elsewhere"}))
                sleep(READ_S)
                app.control.add_consumer(back.QUEUE, destination=[back.LIVES], reply=True)
                doomed.kill()
                killed = time()
                until(lambda: client.llen(back.RUNS) > 2, 60, "the next task of the key begins")
                took_s.append(json.loads(client.lindex(back.RUNS, 2) or "[]")[1] - killed)
                until(lambda: client.llen(back.RUNS) == 8, 60, "all tasks of the key have run")
                app.control.cancel_consumer(back.QUEUE, destination=[back.LIVES], reply=True)
    name, note = "kill of a worker with all places of a key, until the next begins", f"{kills} kills"
    yield Figure(f"{name}, median", median(took_s), "s", MEDIAN_S, note=note)
    yield Figure(f"{name}, longest", max(took_s), "s", LONGEST_S)
