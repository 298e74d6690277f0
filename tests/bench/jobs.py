"""The work that every contender does in the same way. Each job yields figures."""

from collections.abc import Iterator
from math import inf
from statistics import median
from time import monotonic, sleep, time

import psutil

from tests.bench.contender import Contender, Failed, Stage
from tests.bench.figures import Figure
from tests.bench.program import Cannot

#: Tasks that warm a producer up, and that tell how fast it is.
WARM = 200
#: Due times are random within this many s.
WITHIN_S = 2.0
#: A backlog is not filled if enqueueing takes longer, in s.
FILL_S = 65.0
#: How many times the expected time enqueueing may take before tasks come due meanwhile.
SLOWER = 1.5
#: Most tasks cancelled at each backlog, and the longest time for it, in s.
CANCELLED, CANCEL_S = 300, 3.0
#: How long an overdue backlog, and a worker that is one process, is watched, in s.
WATCH_S = 4.0
#: How long a contender may still begin tasks after the last was due, in s.
GRACE_S = 15.0
#: How long idle consumers are watched, and how long all has to stay as it is before, in s.
IDLE_S, STILL_S = 4.0, 2.5
#: For how long the commands are counted that idle consumers send, in s: some send one only every 20 s.
SENT_S = 20.0
#: How long programs may take to settle, in s, and how much memory of a settled process may change, in bytes.
SETTLE_S, SAME_BYTES = 120.0, 200_000
HOUR_S = 3600.0

Found = Iterator[Figure]


def backlog(contender: Contender, size: int, deadline: float) -> Found:
    """Enqueues a backlog, half of it one by one, weighs it, cancels some, and lets the rest move when it is overdue.

    Args:
        contender: The contender.
        size: Number of messages.
        deadline: End of all waiting, by the monotonic clock.
    """
    name = contender.name
    with Stage(contender, deadline) as stage:
        server, due = stage.server, time() + HOUR_S
        stage.client.ask("enqueue", count=0, first=0, last=0, bulk=False)  # its start may take long
        rates = {
            way: WARM / stage.client.ask("enqueue", count=WARM, first=due, last=due, bulk=way == "bulk")["seconds"]
            for way in contender.ways
        }
        expected_s = sum(size / len(rates) / rate for rate in rates.values())
        if expected_s > FILL_S:
            yield Figure("", name, size, why=f"enqueueing {size:,} takes about {expected_s:,.0f} s")
            return
        first = time() + SLOWER * expected_s + WITHIN_S
        before, cpu_s = server.kept_bytes(), server.cpu_s()
        for way in rates:
            done = _enqueue(stage, size // len(rates), first, WITHIN_S, bulk=way == "bulk")
            yield Figure(f"enqueue_{way}", name, size, size // len(rates) / done["seconds"])
            yield Figure(f"enqueue_{way}_cpu", name, size, done["cpu_s"] / (size // len(rates)) * 1e6)
        yield Figure("offer_cpu", name, size, (server.cpu_s() - cpu_s) / size * 1e6)
        yield Figure("kept", name, size, (server.kept_bytes() - before) / size)
        cancelled = 0
        try:
            times = stage.client.ask("cancel", count=CANCELLED, within_s=CANCEL_S)
            cancelled = len(times)
            yield Figure("cancel", name, size, median(times) * 1e3)
        except Cannot as reason:
            yield Figure("cancel", name, why=str(reason))
        sleep(max(0.0, first + WITHIN_S - time()))
        yield from _moved(stage, size, size - cancelled)


def _moved(stage: Stage, size: int, left: int) -> Found:
    contender, server = stage.contender, stage.server
    waiting = int(stage.client.ask("waiting")) if contender.counts else 0

    def moved() -> int:
        return waiting - int(stage.client.ask("waiting")) if contender.counts else stage.journal.count()

    server.watch()
    cpu_s = server.cpu_s()
    stage.run(contender.mover or contender.worker)
    begun = done = monotonic(), 0

    def seen() -> int:
        nonlocal begun, done
        done = monotonic(), moved()
        if done[1] == 0:
            begun = done
        return done[1]

    stage.until(seen, SETTLE_S, "the first message moves")
    end = monotonic() + WATCH_S
    stage.until(lambda: seen() >= left - 2 * WARM or monotonic() > end, WATCH_S * 2, "an overdue backlog moves")
    yield Figure("transfer", contender.name, size, done[1] / (done[0] - begun[0]))
    yield Figure("transfer_cpu", contender.name, size, (server.cpu_s() - cpu_s) / done[1] * 1e6)
    longest_ms = server.longest_ms()
    if longest_ms is not None:
        yield Figure("longest", contender.name, size, longest_ms)


def lateness(contender: Contender, measure: str, count: int, seconds: float, deadline: float) -> Found:
    """Makes tasks come due at random times, or all in one instant, while a worker runs.

    Args:
        contender: The contender.
        measure: Begin of the names of the rows.
        count: Number of tasks.
        seconds: From the first due time to the last.
        deadline: When to wait no longer, by the monotonic clock.
    """
    name, bulk = contender.name, "bulk" in contender.ways
    with Stage(contender, deadline) as stage:
        stage.ready(contender.worker)
        due = time() + HOUR_S
        rate = WARM / stage.client.ask("enqueue", count=WARM, first=due, last=due, bulk=bulk)["seconds"]
        first = time() + 2 + SLOWER * count / rate
        _enqueue(stage, count, first, seconds, bulk=bulk)
        end = first + seconds + GRACE_S
        stage.until(lambda: stage.journal.count() >= count or time() > end, inf, "all tasks have run")
        late_ms = sorted(late * 1e3 for late in stage.journal.late_s())
    if len(late_ms) > count:
        raise Failed(f"{len(late_ms) - count:,} of {count:,} tasks ran twice")
    begun = len(late_ms) / count
    late_ms += [inf] * (count - len(late_ms))
    for row, at in (("p50", count // 2), ("p99", count * 99 // 100), ("max", -1)):
        yield Figure(f"{measure}_{row}", name, 0 if seconds else count, late_ms[at])
    yield Figure(f"{measure}_begun", name, value=begun)


def growth(contender: Contender, count: int, deadline: float) -> Found:
    """Measures how much a worker grows for each task that is due much later."""
    with Stage(contender, deadline) as stage:
        worker = stage.ready(contender.worker)
        _enqueue(stage, WARM, time(), 0, bulk=False)
        stage.until(lambda: stage.journal.count() == WARM, SETTLE_S, "a worker runs some tasks")
        before = _settled(stage, worker)
        _enqueue(stage, count, time() + HOUR_S, 0, bulk="bulk" in contender.ways)
        yield Figure("worker", contender.name, count, max(0.0, (_settled(stage, worker) - before) / count))


def alone(contender: Contender, count: int, deadline: float) -> Found:
    """Lets a worker that is one process run tasks that do nothing, all of which wait when it starts."""
    with Stage(contender, deadline) as stage:
        server, journal = stage.server, stage.journal
        _enqueue(stage, count, time(), 0, bulk="bulk" in contender.ways)
        stage.run(contender.alone)
        stage.until(journal.count, SETTLE_S, "its worker runs a task")
        first, cpu_s, end = journal.count(), server.cpu_s(), monotonic() + WATCH_S
        stage.until(lambda: journal.count() >= count or monotonic() > end, WATCH_S * 2, "its worker is watched")
        done, cpu_s = journal.count(), server.cpu_s() - cpu_s
        # All were due at the same time, so that how late they began tells when.
        begun = journal.late_s()[:done]
    yield Figure("alone", contender.name, value=(done - 1) / (max(begun) - min(begun)))
    yield Figure("alone_cpu", contender.name, value=cpu_s / max(1, done - first) * 1e6)


def idle(contender: Contender, count: int, deadline: float) -> Found:
    """Watches the server while consumers have nothing to do."""
    name = contender.name
    if count > contender.most_consumers:
        yield Figure("idle", name, count, why=f"its server takes only {contender.most_consumers} consumers")
        return
    with Stage(contender, deadline) as stage:
        stage.run([*contender.consumers, str(count)])
        server, since = stage.server, (0.0, 0)

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
        yield Figure("idle_commands", name, count, (server.commands() - commands) / took_s)
        yield Figure("idle_cpu", name, count, (server.cpu_s() - cpu_s) / took_s * 100)
        yield Figure("idle_sent", name, count, server.sent(SENT_S) / SENT_S)


def _enqueue(stage: Stage, count: int, due: float, seconds: float, *, bulk: bool) -> dict[str, float]:
    """Enqueues tasks, for now if the due time is past. Else it raises Failed if one of them was due too soon."""
    now = time()
    done: dict[str, float] = stage.client.ask("enqueue", count=count, first=due, last=due + seconds, bulk=bulk)
    if due > now and done["ahead_s"] < 0:
        raise Failed(f"enqueueing took {-done['ahead_s']:.1f} s longer than expected, so tasks came due meanwhile")
    return done


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
