"""Priorities, several queues, and the order among messages that are due together."""

import time
from collections.abc import Callable
from typing import Any

import kombu
import pytest
from kombu import Connection, Exchange, Queue

from tests.support.conditions import until
from tests.support.workers.harness import MakeProj, Proj

pytestmark = pytest.mark.both_layouts


def _soon(delay_s: float = 2) -> float:
    return time.time() + delay_s


def _publish(connection: Connection, queue: str, due: float, **properties: Any) -> None:
    body = (queue, properties.get("priority", 0))
    connection.Producer().publish(body, routing_key=queue, headers={"eta": _iso(due)}, **properties)


def _iso(due: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(due)) + f".{int(due % 1 * 1e6):06d}+00:00"


def _queues(*names: str) -> list[Queue]:
    return [Queue(name, Exchange(""), name) for name in names]


def _consume(connection: Connection, queues: list[Queue], count: int) -> list[Any]:
    """Receives ``count`` messages, one at a time."""
    received: list[Any] = []

    def on_message(body: Any, message: Any) -> None:
        received.append(tuple(body))
        message.ack()

    with connection.Consumer(queues, callbacks=[on_message], prefetch_count=1):
        while len(received) < count:
            connection.drain_events(timeout=20)
    return received


def _await_ready(proj: Proj, queues: dict[str, int]) -> None:
    """Lets another consumer's transfer worker move what is due."""
    with proj.connection() as other, other.Consumer(_queues("idle"), callbacks=[print]):
        store = other.default_channel.store
        until(lambda: all(store.queues.stats(queue).ready == count for queue, count in queues.items()))


@pytest.mark.parametrize(
    ("steps", "groups"),
    [
        ([0, 3, 6, 9], [[0, 2, 1], [4], [6], [9]]),
        (list(range(10)), [[n] for n in range(10)]),
        ([0, 5], [[4, 0, 3], [9, 5, 7]]),
        ([9, 6, 3, 0], [[0, 9, 5, 3, 7]]),
        ((0, 0, 3, 3), [[0, 2], [9, 4]]),
        ([3, 6], [[3], [9, 0, 6]]),
    ],
)
def test_messages_due_together_come_by_priority_step(
    make_proj: MakeProj, steps: list[int], groups: list[list[int]]
) -> None:
    """Messages due at one moment reach a waiting consumer by priority step, within a step as they were published."""
    proj = make_proj(broker_transport_options={"priority_steps": steps})
    expected = [("jobs", priority) for group in groups for priority in group]
    with proj.connection() as sender, proj.connection() as receiver:
        due = _soon()
        # Steps backwards, so that the order of publishing alone would be wrong.
        for group in reversed(groups):
            for priority in group:
                _publish(sender, "jobs", due, priority=priority)
        received = _consume(receiver, _queues("jobs"), len(expected))
    assert time.time() >= due
    assert received == expected


def _blocks(received: list[Any]) -> list[str]:
    return [queue for n, (queue, _) in enumerate(received) if n == 0 or received[n - 1][0] != queue]


@pytest.mark.parametrize(
    ("strategy", "right"),
    [
        # Before 5.7 kombu forgets in which order the queues were given.
        ("priority", lambda names: len(names) == 3 and (names == ["b", "c", "a"] or kombu.VERSION < (5, 7))),
        ("sorted", lambda names: names == ["a", "b", "c"]),
        ("round_robin", lambda names: len(names) == 9 and {*names[:3]} == {"a", "b", "c"}),
    ],
)
def test_queues_are_consumed_in_the_order_of_their_strategy(
    make_proj: MakeProj, strategy: str, right: Callable[[list[str]], bool]
) -> None:
    """Messages that were delayed come from several queues as ``queue_order_strategy`` says, as on stock."""
    proj = make_proj(broker_transport_options={"queue_order_strategy": strategy})
    with proj.connection() as connection:
        due = _soon()
        for queue in ("a", "b", "c"):
            for _ in range(3):
                _publish(connection, queue, due)
        _await_ready(proj, {"a": 3, "b": 3, "c": 3})
        received = _consume(connection, _queues("b", "c", "a"), 9)
    assert right(_blocks(received)), received


def test_tasks_due_in_the_same_instant_run_as_they_were_published(proj: Proj) -> None:
    """Tasks with one eta run in the order of publishing, those of a higher priority first; none is early."""
    proj.worker(pool="solo")
    due = _soon(4)
    for n in range(250):  # more than one batch
        proj.send("record", n, eta=_iso(due))
    for n in range(250, 290):
        proj.send("record", n, eta=_iso(due + 2), priority=9 if n < 270 else 0)
    runs = proj.await_runs(290)
    assert [run["value"] for run in runs] == [*range(250), *range(270, 290), *range(250, 270)]
    assert all(run["at"] >= due + 2 * (run["value"] >= 250) for run in runs)
