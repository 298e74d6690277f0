"""Queues that are paused: consumers leave what is in them, also those that wait already, and go on when they may."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import monotonic

import pytest
from kombu import Connection

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.commands.shell import run
from tests.support.conditions import stays, until
from tests.support.looped import Looped, publish
from tests.support.workers.harness import MakeProj

Connect = Callable[[], Connection]


@contextmanager
def of_slots() -> Iterator[Connect]:
    """Connects to a cluster of one node."""
    with PrivateRedis(slots=True) as server:
        yield lambda: Connection(server.url.replace("redis://", "delayq://"))


@contextmanager
def of_plain() -> Iterator[Connect]:
    """Connects to a plain server."""
    with PrivateRedis() as server:
        yield lambda: Connection(server.url.replace("redis://", "delayq://"))


@pytest.mark.parametrize("connecting", [of_plain, of_slots])
def test_a_consumer_that_waits_already_gets_nothing(connecting: Callable[[], AbstractContextManager[Connect]]) -> None:
    """What comes stays in the paused queue, in its order, and costs a request a second; other queues go on."""
    with connecting() as connect, connect() as sender, Looped(connect(), "a", "b") as looped:
        looped.until(looped.waits_for("a", "b"))
        assert looped.store.fetching.pause("a")
        publish(sender, "a", 1, 2, 3)
        publish(sender, "b", "other")
        looped.until(lambda: looped.received == ["other"])
        looped.until(looped.waits_for("b"))  # and no more for the paused one
        looped.until(lambda: looped.store.fetching.ready(["a"]) == [3])
        before, begun = fetches(looped), monotonic()
        looped.until(lambda: monotonic() - begun > 2)
        assert looped.received == ["other"]
        assert looped.store.fetching.ready(["a"]) == [3]
        asked = fetches(looped) - before
        assert asked <= 6 * (monotonic() - begun)  # beside those of a transfer worker
        assert looped.channel.basic_get("a") is None
        assert looped.store.fetching.resume("a")
        looped.until(lambda: looped.received == ["other", 1, 2, 3])
        looped.until(looped.waits_for("a", "b"))


def fetches(looped: Looped) -> int:
    """Counts the requests for messages so far."""
    return int(looped.store.client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))


@pytest.mark.journey
def test_a_pause_outlives_workers_and_transfers_go_on(make_proj: MakeProj) -> None:
    """Workers new and old leave a paused queue alone, in which what comes due is ready, until the shell resumes it."""
    proj = make_proj()
    client = proj.server.client()
    worker = proj.worker()
    run(proj.server, "queues", "pause", "celery")
    proj.send("record", 1)
    proj.send("record", 2, countdown=0.5)
    until(lambda: client.llen("celery") == 2, what="one is sent, and one comes due")
    worker.stop()
    proj.worker()
    stays(lambda: client.llen("celery") == 2, 2)
    assert "paused" in run(proj.server, "status").stdout
    assert "paused" in run(proj.server, "doctor", "--only", "paused", code=1).stdout
    run(proj.server, "queues", "resume", "celery")
    proj.await_runs(2)
