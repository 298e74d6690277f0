"""What a broker remembers of a bulk job can be asked without Spark, and counts what was really sent."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import Celery

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import job
from celery_ext.spark.write.sender import Sender
from kombu_delayq.store import DelayStore
from kombu_delayq.store.job_types import JobRun
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.types import Offer
from tests.spark.logic.test_without_spark import run_without
from tests.support import ROOT
from tests.support.conditions import until
from tests.support.spark.landing import open_store
from tests.support.store.jobs import begun, several
from tests.support.workers.harness import TRANSPORT

#: A Spark task of the job "j" that sends and cancels, without Spark: the module is run with the port.
WRITER = """
import sys
import redis
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.sender import Sender
from kombu_delayq.store import DelayStore
from tests.spark.logic.test_jobs import write
store = DelayStore(redis.Redis(port=int(sys.argv[1])))
write(store, int(sys.argv[2]), until=1500)
"""
#: Messages of the writer, each for one of two queues; tasks that it cancels.
SENT, CANCELLED = 2000, 400


def write(store: DelayStore, run: int, until: int = SENT) -> None:
    """Sends all messages and cancels all tasks of the job, as one attempt of a Spark task does.

    With ``until`` it stands still at this message, and waits to be killed.
    """
    from celery_ext.spark.options import WriteOptions

    job = JobRun("j", run, 600_000)
    assert store.jobs.begin(job).word == "open"
    sender = Sender(store, job, WriteOptions.parse({"chunk_size": "10"}))
    for n in range(0, SENT, 10):
        if n == until:
            signal.pause()
        sender.add("ab"[n // 10 % 2], [Offer(f"i{at}", "", 0, "body") for at in range(n, n + 10)])
        if n % 50 == 0:
            sender.cancel("a", [f"c{at}" for at in range(n // 5, n // 5 + 10)])
    sender.flush()
    sender.close()


def test_a_job_can_be_asked_for_without_spark(redis_server: PrivateRedis, client: redis.Redis) -> None:
    """An app without the packages of the extra learns how far a job is."""
    store = DelayStore(client)
    store.jobs.enqueue("q", begun(store, "nightly"), several(3))
    code = f"from celery_ext.spark import job; print(job({redis_server.url!r}, 'nightly').sent)"
    done = run_without(("pyspark", "pyarrow"), code)
    assert done.stdout.strip() == "3", done.stderr


def test_a_query_names_the_job_of_its_last_micro_batch(redis_server: PrivateRedis, client: redis.Redis) -> None:
    """A streaming query, or one of its progresses, stands for a job; before its first micro-batch for none."""
    progress: Any = SimpleNamespace(id="a-b", batchId=7)
    query: Any = SimpleNamespace(id="a-b", lastProgress=progress)
    store = DelayStore(client)
    store.jobs.enqueue("q", begun(store, "a-b/7"), several(3))
    for of in (query, progress):
        found = job(redis_server.url, of)
        assert found is not None
        assert found.sent == 3
    query.lastProgress = None
    assert job(redis_server.url, query) is None


def of_url(url: str) -> tuple[Any, dict[str, Any]]:
    return url, {"transport_options": {"global_keyprefix": "shop."}}


def of_urls(url: str) -> tuple[Any, dict[str, Any]]:
    return ["redis://127.0.0.1:1/0", url], {"transport_options": {"global_keyprefix": "shop."}}


def of_app(url: str) -> tuple[Any, dict[str, Any]]:
    app = Celery("shop", set_as_current=False, broker=url)
    app.conf.update(broker_transport=TRANSPORT, broker_transport_options={"global_keyprefix": "shop."})
    return app, {}


@pytest.mark.parametrize("named", [of_url, of_urls, of_app])
def test_the_broker_is_named_by_url_or_app(
    redis_server: PrivateRedis, client: redis.Redis, named: Callable[[str], tuple[Any, dict[str, Any]]]
) -> None:
    """One URL, a failover list or an app names the broker; its prefix counts."""
    store = DelayStore(client, Keys("shop."))
    store.jobs.enqueue("q", begun(store, "nightly"), several(3))
    broker, options = named(redis_server.url)
    found = job(broker, "nightly", **options)
    assert found is not None
    assert (found.state, found.sent, found.rows) == ("running", 3, None)
    assert job(broker, "other", **options) is None


def test_counts_of_a_writer_that_is_killed_again_and_again(redis_server: PrivateRedis, client: redis.Redis) -> None:
    """Each message counts once, whenever attempts are ended by ``kill -9``; each task is cancelled."""
    with open_store(redis_server) as store:
        for n in range(CANCELLED):
            store.delivery.offer("cd"[n % 2], Offer(f"c{n}", "4102444800000.0", 0, "body"))
        for most in (300, 700, 1100):
            run = store.jobs.new_run()
            writer = subprocess.Popen([sys.executable, "-c", WRITER, str(redis_server.port), str(run)], cwd=ROOT)
            until(lambda most=most: client.llen("a") + client.llen("b") >= most)  # type: ignore[misc]
            os.kill(writer.pid, signal.SIGKILL)
            writer.wait(20)
            found = store.jobs.find("j")
            assert found is not None
            assert found.sent == client.llen("a") + client.llen("b")
            assert most <= found.sent < SENT
        write(store, store.jobs.new_run())
        found = store.jobs.find("j")
        assert found is not None
        assert (found.sent, client.llen("a"), client.llen("b")) == (SENT, 1000, 1000)
        assert (store.queues.size("c"), store.queues.size("d")) == (0, 0)
