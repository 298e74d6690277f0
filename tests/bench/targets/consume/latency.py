"""How soon an idle worker begins a single task."""

import base64
import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median, quantiles
from time import sleep, time
from typing import Any, NamedTuple
from uuid import uuid4

from celery_ext.demo.private_redis import PrivateRedis
from tests.bench.targets.consume.kinds import STOCK, TAKE, TASK_ID, Bench, Kind, bench, template
from tests.bench.targets.report import Figure
from tests.bench.targets.worker import answers
from tests.support.conditions import until

#: Between two messages to a worker, in s: random, because a worker that waits does so in turns of 1 s.
BETWEEN_S = (0.01, 0.06)
#: Messages that warm a worker up: with priorities, each queue gets one of each.
WARM = 20
#: What kombu puts between the name of a queue and a priority, and the priorities that it has by default.
SEPARATOR, PRIORITIES = "\x06\x16", (0, 3, 6, 9)


class Case(NamedTuple):
    """Number of queues that a worker consumes, and whether messages have all priorities or none."""

    queues: int
    priorities: bool

    @property
    def lists(self) -> list[tuple[str, int]]:
        """The lists to which messages are pushed, and the priority of these messages."""
        priorities = PRIORITIES if self.priorities else PRIORITIES[:1]
        return [
            (f"bench{number}{SEPARATOR}{priority}" if priority else f"bench{number}", priority)
            for number in range(self.queues)
            for priority in priorities
        ]


CASES = [Case(queues, priorities) for priorities in (False, True) for queues in (1, 8)]


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Sends messages one by one to workers of each kind in turn, each with a Redis of its own."""
    count = 60 if quick else 120
    for case in CASES:
        named = f"{case.queues} queue{'s' if case.queues > 1 else ''}{', priorities' if case.priorities else ''}"
        late_s = _late_s(case, count)
        mine, stock = late_s[TAKE], late_s[STOCK]
        note = f"{count} messages in turns, LPUSH to task start, threads; {_spread(mine)}; stock: {_spread(stock)}"
        yield Figure(f"latency, {named}, median, take / stock", median(mine) / median(stock), "", 1.0, note=note)
        for kind, found in late_s.items():
            yield Figure(f"latency, {named}, median, {kind.name}", median(found) * 1000, "ms")


def _late_s(case: Case, count: int) -> dict[Kind, list[float]]:
    """Returns how late the tasks of each kind began, in s."""
    with ExitStack() as opened:
        benches = [opened.enter_context(bench(kind)) for kind in (STOCK, TAKE)]
        message = template()
        for one in benches:
            queues = [f"bench{number}" for number in range(case.queues)]
            opened.enter_context(one.worker("--pool", "threads", queues=queues))
        for one in benches:
            answers(one.server.url)
        clients = [one.server.client() for one in benches]
        for place in [*case.lists, *random.choices(case.lists, k=WARM)]:
            for one, client in zip(benches, clients, strict=True):
                _send(one, client, place, message)
        for one in benches:
            one.journal.clear()
        for _ in range(count):
            place = random.choice(case.lists)
            for one, client in zip(benches, clients, strict=True):
                sleep(random.uniform(*BETWEEN_S))
                _send(one, client, place, message)
        return {one.kind: one.journal.late_s() for one in benches}


def _send(one: Bench, client: Any, place: tuple[str, int], message: str) -> None:
    """Pushes a message and waits until its task has begun, which notes how late that was."""
    name, priority = place
    before, fields = one.journal.count(), json.loads(message.replace(TASK_ID, str(uuid4())))
    fields["properties"]["priority"] = priority
    client.lpush(name, with_due(fields, time()))
    until(lambda: one.journal.count() > before, 10, f"a task of {name} begins in a worker with {one.kind.name}")


def with_due(message: dict[str, Any], due: float) -> str:
    """Returns a message whose task has this argument."""
    args, *rest = json.loads(base64.b64decode(message["body"]))
    args[0] = due
    return json.dumps({**message, "body": base64.b64encode(json.dumps([args, *rest]).encode()).decode()})


def _spread(late_s: list[float]) -> str:
    p95 = quantiles(late_s, n=20)[18]
    return f"median {median(late_s) * 1000:.2f}, p95 {p95 * 1000:.2f}, longest {max(late_s) * 1000:.1f} ms"
