"""Helpers beside the JVM for the tests of queues that Redisson and Celery share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.conditions import until, until_equal
from tests.support.jvm.redisson import Jvm
from tests.support.workers.harness import MakeProj, Proj


def shared(make_proj: MakeProj, **options: Any) -> Proj:
    """Makes the app with its delayed messages in Redisson's layout; ``options`` are transport options."""
    return make_proj(broker_transport_options={"layout": "redisson", **options})


@contextmanager
def transferring(jvm: Jvm, queue: str) -> Iterator[None]:
    """Runs Redisson's transfer task of a queue meanwhile."""
    jvm.ask("start", queue=queue)
    try:
        yield
    finally:
        jvm.ask("stop", queue=queue)


def nothing_left(proj: Proj, queue: str = "celery") -> None:
    """Waits until nothing but counters is left of a queue's delayed messages. Our next transfer removes our notes."""
    client = proj.server.client()
    until_equal(lambda: client.keys("redisson_delay_queue*"), [], what="no key of Redisson")
    with proj.connection() as connection:
        connection.default_channel.store.delivery.transfer(queue)
    ours = f"delayq:*{queue}*"
    until_equal(
        lambda: [key for key in client.keys(ours) if ":counts" not in key], [], what="no key of ours but counters"
    )


def known(proj: Proj, queue: str = "celery") -> None:
    """Waits until a transfer worker of ours knows a queue in which Java's messages are the first."""
    until(lambda: proj.server.client().sismember("{delayq}:queues", queue))
