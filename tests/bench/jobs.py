"""The work that every contender does in the same way."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from math import inf
from statistics import median
from time import monotonic, sleep, time
from typing import Any

import psutil
import redis

from tests.bench.contender import Cannot, Contender, Stage
from tests.bench.filling import NOT_TOLD, WARM, Filling, check_ahead
from tests.bench.results import Gap, Sample
from tests.bench.servers import Server

#: How many times the expected time enqueueing may take before tasks come due meanwhile.
SLOWER = 1.25
#: Most tasks cancelled at each backlog, and the longest time for it, in s.
CANCELLED, CANCEL_S = 300, 3.0
#: How long an overdue backlog is watched while it moves, in s.
TRANSFER_S = 4.0
#: How long a contender may still begin tasks after the last was due, in s.
GRACE_S = 25.0
#: How long idle consumers are watched, and how long connections have to stay as they are before, in s.
IDLE_S, STILL_S = 4.0, 2.5
#: How long programs may take to settle, in s.
SETTLE_S = 120.0
#: How much the memory of a settled process may change, in bytes.
SAME_BYTES = 200_000
#: How long a worker that is one process is watched from its first task on, in s.
ALONE_S = 4.0
HOUR_S = 3600.0
#: Commands in a pipeline.
PUSHED = 200

Found = Iterator[Sample | Gap]


def backlog(contender: Contender, size: int, deadline: float, *, both: bool, within_s: float) -> Found:
    """Enqueues a backlog, weighs it, cancels some of it, and lets the rest move when all of it is overdue.

    Args:
        contender: The contender.
        size: Number of messages.
        deadline: End of all waiting, by the monotonic clock.
        both: Whether half of the messages are enqueued one at a time, half in bulk; else all in bulk, if it has a way.
        within_s: If enqueueing would take longer, in s, nothing is done.
    """
    with Stage(contender, deadline) as stage:
        filling = Filling(stage, size, both=both)
        if filling.expected_s > within_s:
            why = f"not filled: enqueueing {size:,} takes about {filling.expected_s:,.0f} s"
            yield Gap("", contender.name, size, why)
            return
        yield from filling.fill()
        cancelled = yield from _cancelled(stage, size)
        if "transfer" not in contender.gaps:
            filling.await_due()
            yield from _moved(stage, size, filling.count - cancelled)


def _cancelled(stage: Stage, size: int) -> Generator[Sample | Gap, None, int]:
    """Cancels some messages, yields the times, and returns the number of cancelled messages."""
    name = stage.contender.name
    try:
        times = stage.client.ask("cancel", count=CANCELLED, within_s=CANCEL_S)
    except Cannot as reason:
        yield Gap("cancel", name, 0, str(reason))
        return 0
    yield Sample("cancel", name, size, median(times) * 1e3)
    yield Sample("cancel_worst", name, size, max(times) * 1e3)
    return len(times)


def _moved(stage: Stage, size: int, left: int) -> Found:
    contender, server = stage.contender, stage.server
    if contender.counts:
        left = int(stage.client.ask("waiting"))

    def moved() -> int:
        return left - int(stage.client.ask("waiting")) if contender.counts else stage.journal.count()

    server.watch()
    cpu = server.cpu_s()
    stage.run(contender.mover or contender.worker)
    begun = done = monotonic(), 0

    def seen() -> int:
        nonlocal begun, done
        done = monotonic(), moved()
        if done[1] == 0:
            begun = done
        return done[1]

    stage.until(seen, SETTLE_S, "the first message moves")
    end = monotonic() + TRANSFER_S
    stage.until(lambda: seen() >= left or monotonic() > end, TRANSFER_S * 2, "an overdue backlog moves")
    name = contender.name
    yield Sample("transfer", name, size, done[1] / (done[0] - begun[0]))
    yield Sample("transfer_cpu", name, size, (server.cpu_s() - cpu) / done[1] * 1e6)
    longest_ms = server.longest_ms()
    if longest_ms is None:
        yield Gap("longest", name, size, NOT_TOLD)
    else:
        yield Sample("longest", name, size, longest_ms)


def lateness(measure: str, rates: Mapping[Contender, float], count: int, seconds: float, deadline: float) -> Found:
    """Makes tasks come due at random times, or all in one instant, while a worker of each contender runs.

    Args:
        measure: Begin of the names of the rows.
        rates: The contenders that run at the same time, and how many tasks a second each is expected to enqueue.
        count: Tasks of each contender. Their times, random within ``seconds``, are a Poisson process of known count.
        seconds: From the first due time to the last.
        deadline: When to wait no longer, by the monotonic clock.
    """
    with ExitStack() as opened:
        stages = {contender: opened.enter_context(Stage(contender, deadline)) for contender in rates}
        for contender, stage in stages.items():
            stage.ready(contender.worker)
        first = time() + 2 + SLOWER * sum(count / rate for rate in rates.values())
        for contender, stage in stages.items():
            _enqueue(stage, count, first, seconds, bulk="bulk" in contender.ways)
        end = first + seconds + GRACE_S
        for stage in stages.values():
            stage.until(lambda stage=stage: stage.journal.count() >= count or time() > end, inf, "all tasks have run")
        for contender, stage in stages.items():
            yield from _late(measure, contender.name, stage.journal.late_s(), count)


def _late(measure: str, name: str, late_s: list[float], count: int) -> Found:
    if len(late_s) > count:
        yield Gap(f"{measure}_more", name, 0, f"{len(late_s) - count:,} of {count:,} tasks ran twice")
    times_ms = sorted(seconds * 1e3 for seconds in late_s)
    times_ms += [inf] * (count - len(times_ms))
    for row, at in (("min", 0), ("p50", count // 2), ("p99", count * 99 // 100), ("max", -1)):
        yield Sample(f"{measure}_{row}", name, 0, times_ms[at])
    yield Sample(f"{measure}_begun", name, 0, len(late_s) / count)


def growth(contender: Contender, count: int, deadline: float) -> Found:
    """Measures how much a worker grows while tasks wait that are due much later."""
    with Stage(contender, deadline) as stage:
        worker = stage.ready(contender.worker)
        _enqueue(stage, sum(WARM), time(), 0, bulk=False)
        stage.until(lambda: stage.journal.count() == sum(WARM), SETTLE_S, "a worker runs some tasks")
        before = _settled(stage, worker)
        _enqueue(stage, count, time() + HOUR_S, 0, bulk="bulk" in contender.ways)
        yield Sample("worker", contender.name, count, (_settled(stage, worker) - before) / count)


def alone(contender: Contender, count: int, deadline: float) -> Found:
    """Lets a worker that is one process run tasks that do nothing, all of which wait when it starts."""
    with Stage(contender, deadline) as stage:
        due, server, journal = time(), stage.server, stage.journal
        _enqueue(stage, count, due, 0, bulk="bulk" in contender.ways)
        stage.run(contender.alone)
        stage.until(journal.count, SETTLE_S, "its worker runs a task")
        first, cpu_s, end = journal.count(), server.cpu_s(), monotonic() + ALONE_S
        stage.until(lambda: journal.count() >= count or monotonic() > end, ALONE_S * 2, "its worker is watched")
        done, cpu_s = journal.count(), server.cpu_s() - cpu_s
        # All were due at the same time, so that how late they began tells when.
        begun = journal.late_s()[:done]
    yield Sample("alone", contender.name, 0, (done - 1) / (max(begun) - min(begun)))
    yield Sample("alone_cpu", contender.name, 0, cpu_s / (done - first) * 1e6)


def idle(contender: Contender, count: int, deadline: float, measure: str = "idle") -> Found:
    """Watches the server while consumers have nothing to do. measure: Begin of the names of the rows."""
    name = contender.name
    if count > contender.most_consumers:
        yield Gap(
            measure, name, count, f"with its default limits the server takes only {contender.most_consumers} consumers"
        )
        return
    with Stage(contender, deadline) as stage:
        stage.run([*contender.consumers, str(count)])
        server = stage.server
        since = 0.0, 0

        def still() -> bool:
            nonlocal since
            open_now = server.connections()
            if open_now != since[1]:
                since = monotonic(), open_now
            return open_now >= count and monotonic() - since[0] > STILL_S

        stage.until(still, SETTLE_S, f"{count} consumers are connected")
        commands, cpu_s, begun = server.commands(), server.cpu_s(), monotonic()
        sleep(IDLE_S)
        took_s = monotonic() - begun
        later = server.commands()
        if commands is None or later is None:
            yield Gap(f"{measure}_commands", name, count, "its server does not count commands")
        else:
            yield Sample(f"{measure}_commands", name, count, (later - commands) / took_s)
        yield Sample(f"{measure}_cpu", name, count, (server.cpu_s() - cpu_s) / took_s * 100)


def quiet(contender: Contender, count: int, deadline: float) -> Found:
    """Does the same as ``idle``, with consumers that send each other no regular messages."""
    without = replace(contender, env={**contender.env, **contender.quiet})
    yield from idle(without, count, deadline, "quiet")


def limit(contender: Contender, count: int, deadline: float) -> Found:
    """Pushes messages like a contender's with the bare command."""
    with Stage(contender, deadline) as stage:
        stage.client.ask("enqueue", count=1, first=0, last=0, bulk=False)
        message: Any = redis.Redis.from_url(stage.server.url).lindex("celery", 0)
        yield Sample("limit", "LPUSH", 0, push(stage.server, message, count))
        yield Sample("limit_bytes", "LPUSH", 0, len(message))


def push(server: Server, message: bytes, count: int) -> float:
    """Pushes a message many times with ``LPUSH``, in pipelines. Returns the CPU time of Redis for one, in µs."""
    client, cpu_s = redis.Redis.from_url(server.url), server.cpu_s()
    for _ in range(count // PUSHED):
        pipe = client.pipeline(transaction=False)
        for _ in range(PUSHED):
            pipe.lpush("bare", message)
        pipe.execute()
    return (server.cpu_s() - cpu_s) / (count // PUSHED * PUSHED) * 1e6


def _enqueue(stage: Stage, count: int, due: float, seconds: float, bulk: bool) -> dict[str, float]:
    """Enqueues tasks, for now if the due time is past. Else it raises Failed if one of them was due too soon."""
    now = time()
    done = stage.client.ask("enqueue", count=count, first=due, last=due + seconds, bulk=bulk)
    if due > now:
        check_ahead(done)
    return {**done, "rate": count / done["seconds"]}


def _settled(stage: Stage, process: psutil.Process) -> int:
    """Waits until a process and its children do not grow any more. Returns their resident memory in bytes."""
    kept = monotonic(), 0

    def still() -> bool:
        nonlocal kept
        found = sum(running.memory_info().rss for running in (process, *process.children(recursive=True)))
        if abs(found - kept[1]) > SAME_BYTES:
            kept = monotonic(), found
        return monotonic() - kept[0] > STILL_S

    stage.until(still, SETTLE_S, "a worker has settled")
    return kept[1]
