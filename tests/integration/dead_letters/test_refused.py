"""Dead letters, retries and rests that Redis refuses, because it is full."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis

from celery_ext import install
from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import until
from tests.support.workers.chains import TASKS, error_of, messages, retries_of, waiting_step
from tests.support.workers.harness import TRANSPORT, Proj
from tests.support.workers.held import in_hand

POOLS = ["prefork", "threads", "solo", "gevent"]


@contextmanager
def full(proj: Proj) -> Iterator[None]:
    """Redis has no memory left for writes."""
    client = proj.server.client()
    client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        client.config_set("maxmemory", 0)


@pytest.fixture
def proj(own_server: PrivateRedis, client: redis.Redis, redis_server: PrivateRedis) -> Iterator[Proj]:
    """An app whose results and notes are not in the Redis that is full."""
    settings = {"broker_url": own_server.url, "broker_transport": TRANSPORT, "result_backend": redis_server.url_of(1)}
    proj = Proj(own_server, {**settings, **TASKS}, redis_server)
    install(proj.app)
    try:
        yield proj
    finally:
        proj.close()


def begun(proj: Proj, pool: str, task: str, *args: Any, **options: Any) -> Any:
    """Returns a worker, and a task that runs there."""
    worker = proj.worker(pool=pool, **({} if pool == "solo" else {"concurrency": 2}))
    sent = proj.send(task, *args, **options)
    until(lambda: proj.runs(id=sent.id), 60, "it runs")
    return worker, sent


def is_done(proj: Proj) -> bool:
    """Whether nobody holds a message, and none is ready."""
    client = proj.server.client()
    return not (in_hand(client) or client.llen("celery"))


@pytest.mark.parametrize(
    ("pool", "how", "options", "reason"),
    [
        *((pool, "raise after go", {}, "failed") for pool in POOLS),
        ("prefork", "kill after go", {}, "worker lost"),
        ("prefork", "hang after go", {"time_limit": 3}, "time limit exceeded"),
    ],
)
def test_a_message_goes_back_whose_letter_is_refused(
    proj: Proj, pool: str, how: str, options: dict[str, Any], reason: str
) -> None:
    """It is not acknowledged: the task runs again, and leaves one letter once there is memory."""
    worker, sent = begun(proj, pool, "doomed_late", how, **options)
    with full(proj):
        proj.journal.rpush("go", 1)
        until(lambda: len(proj.runs(id=sent.id)) >= 2, 60, "it runs again")
        assert "could not be put into 'failed'; its message goes back" in worker.log
        # What ends a task from outside, Celery has stored by then.
        assert sent.state == ("PENDING" if reason == "failed" else "FAILURE")
    proj.journal.rpush("go", *[1] * 20)
    [letter] = until(lambda: messages(proj, "failed"), 60, "it is buried")
    assert letter["properties"]["dead_letter"]["reason"] == reason
    until(lambda: is_done(proj), 60, "it is acknowledged")
    assert not messages(proj, "failed")
    assert error_of(sent)


@pytest.mark.parametrize("pool", POOLS)
def test_a_message_goes_back_whose_retry_is_refused(proj: Proj, pool: str) -> None:
    """The task runs again as the same step, and is retried once there is memory."""
    worker, sent = begun(proj, pool, "gated")
    gate = f"fail {sent.id}"
    with full(proj):
        proj.journal.rpush(gate, 1)
        until(lambda: len(proj.runs(id=sent.id)) == 2, 60, "it runs again")
    proj.journal.rpush(gate, 1)
    waiting_step(proj, sent.id, 1)
    until(lambda: is_done(proj), 60, "it is acknowledged")
    assert retries_of(proj, sent.id) == [0, 0]
    assert worker.alive()


@pytest.mark.parametrize("options", [{}, {"limit": "account:7"}], ids=["alone", "with a key"])
@pytest.mark.parametrize("pool", POOLS)
def test_a_task_rests_while_redis_is_full(proj: Proj, pool: str, options: dict[str, Any]) -> None:
    """After ``Backoff`` its message waits, alone or with its key, which takes no memory."""
    proj.conf["broker_transport_options"] = {"limits": {"account": {"running": 1}}}
    _, sent = begun(proj, pool, "doomed_late", "back off after go", **options)
    with full(proj):
        proj.journal.rpush("go", *[1] * 2)
        until(lambda: proj.runs(id=sent.id) and in_hand(proj.server.client()) == 0, 60, "it has gone back")
    until(lambda: len(proj.runs(id=sent.id)) == 3, 60, "it runs after each rest")


def test_a_message_goes_back_whose_failure_cannot_be_stored_either(own_server: PrivateRedis, proj: Proj) -> None:
    """As above, where results are in the same Redis."""
    proj.conf["result_backend"] = own_server.url
    _, sent = begun(proj, "prefork", "doomed_late", "raise after go")
    with full(proj):
        proj.journal.rpush("go", 1)
        until(lambda: len(proj.runs(id=sent.id)) == 2, 60, "it runs again")
    proj.journal.rpush("go", 1)
    until(lambda: len(messages(proj, "failed")) == 1, 60, "it is buried")
    until(lambda: is_done(proj), 60, "it is acknowledged")


def test_a_task_that_was_acknowledged_before_fails(proj: Proj) -> None:
    """Nothing can go back, and the log says that there is no letter."""
    worker, sent = begun(proj, "prefork", "doomed", "raise after go")
    with full(proj):
        proj.journal.rpush("go", 1)
        assert "no such order" in str(error_of(sent))
    assert "could not be put into 'failed'\n" in worker.log
    assert not messages(proj, "failed")
