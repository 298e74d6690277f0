"""How late tasks of one queue begin while a worker runs far more of another one."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import random
from statistics import median
from tempfile import TemporaryDirectory
from time import sleep, time

from celery_ext import Call, send_many
from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.app import OURS, TASK, make_app
from tests.bench.targets.consume import QUEUE, TAKE, Worker
from tests.bench.targets.report import Figure
from tests.support.conditions import until

#: How long a job may take, in s.
PATIENCE_S = 300.0
#: Tasks of a queue while another one floods, within how many s they come due, and how often that is measured.
QUIET, QUIET_S = 500, 5.0
#: For how many s before the flood tasks of both queues come due, too, as many a second. They do not count. Until then
#: all that Redis has is read that often, as machines may put memory away that nobody touches.
LEAD_S, TOUCH_S = 2.0, 0.25
RUNS = 5
#: The other queue, and the due time that tasks get which do not count. It is so long ago that all are very late.
FLOOD, OTHERS = "flood", 0.0
#: How long it may take to send what floods, in s: in any case, and for each.
FILL_S, FILL_EACH_S = 5.0, 0.000_1


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Lets tasks of one queue come due at random times, while a worker runs far more of another one."""
    count = 10_000 if quick else 100_000
    for after_pause in (False, True):
        for how, workers in (("a worker each", [(QUEUE,), (FLOOD,)]), ("one worker for both", [(QUEUE, FLOOD)])):
            runs = [_flooded(server, count, workers, after_pause=after_pause) for _ in range(RUNS)]
            name = f"quiet queue while another floods {count:,}{' after a pause' if after_pause else ''}, {how}: late"
            medians, tails = ([late_ms[at] for late_ms, _ in runs] for at in (QUIET // 2, QUIET * 99 // 100))
            yield Figure(f"{name}, median of {RUNS} runs", median(medians), "ms")
            ran = min(ran for _, ran in runs)
            note = f"{QUIET} tasks within {QUIET_S:.0f} s; meanwhile at least {ran:,} others ran"
            yield Figure(f"{name}, 99 %, median", median(tails), "ms", note=note)
            yield Figure(f"{name}, 99 %, worst", max(tails), "ms", None if after_pause else 20)


def _flooded(
    server: PrivateRedis, count: int, workers: Sequence[Sequence[str]], *, after_pause: bool
) -> tuple[list[float], int]:
    """Returns how late the tasks of the quiet queue began in ms, in order, and how many of the others ran meanwhile.

    Args:
        server: The broker.
        count: Number of the others.
        workers: The queues of each worker.
        after_pause: Whether all have nothing to do before the flood.
    """
    app, client = make_app(server.url, OURS), server.client()
    client.flushall()
    with ExitStack() as opened:
        folder, journals = Path(opened.enter_context(TemporaryDirectory(prefix="delayq-bench-"))), []
        for number, queues in enumerate(workers):
            own = folder / str(number)
            own.mkdir()
            worker = Worker(TAKE, server, own, "threads", "-Q", ",".join(queues), "-n", f"{number}@bench")
            opened.callback(worker.close)
            journals.append(worker.journal)
            for queue in queues:
                app.send_task(TASK, (OTHERS,), queue=queue)
            until(partial(_has_run, worker, len(queues)), 60, "a worker runs a task of each of its queues")
        first = time() + FILL_S + count * FILL_EACH_S
        for queue in () if after_pause else (QUEUE, FLOOD):
            lead = (first - random() * LEAD_S for _ in range(round(QUIET * LEAD_S / QUIET_S)))
            send_many(app, TASK, (Call((OTHERS,), eta=datetime.fromtimestamp(due, UTC)) for due in lead), queue=queue)
        dues = sorted(first + random() * QUIET_S for _ in range(QUIET))
        send_many(app, TASK, (Call((due,), eta=datetime.fromtimestamp(due, UTC)) for due in dues), queue=QUEUE)
        flood = (Call((OTHERS,), eta=datetime.fromtimestamp(first + random(), UTC)) for _ in range(count))
        send_many(app, TASK, flood, queue=FLOOD)
        if time() > first - LEAD_S:
            raise RuntimeError("the machine is too busy: the first tasks came due before all were sent")

        def late_s() -> list[float]:
            return [late for journal in journals for late in journal.late_s()]

        def quiet() -> list[float]:
            return [late for late in late_s() if late < PATIENCE_S]

        while not after_pause and time() < first - 2 * TOUCH_S:
            for key in client.scan_iter():
                client.memory_usage(key, samples=0)
            sleep(TOUCH_S)
        sleep(max(0.0, first + QUIET_S - time()))
        until(lambda: len(quiet()) == QUIET, PATIENCE_S, "the tasks of the quiet queue have run")
        return sorted(late * 1000 for late in quiet()), len(late_s()) - QUIET


def _has_run(worker: Worker, count: int) -> bool:
    return worker.journal.count() == count
