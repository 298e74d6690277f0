"""What a broker remembers of a bulk job can be asked without Spark, and counts what was really sent."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import Celery

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark import job
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from tests.spark.logic.test_without_spark import run_without
from tests.support.store.jobs import begun, jobs, several
from tests.support.workers.harness import TRANSPORT


def test_a_job_can_be_asked_for_without_spark(redis_server: PrivateRedis, client: redis.Redis) -> None:
    """An app without the packages of the extra learns how far a job is."""
    store = DelayStore(client)
    jobs(store).enqueue("q", begun(store, "nightly"), several(3))
    code = f"from celery_ext.spark import job; print(job({redis_server.url!r}, 'nightly').sent)"
    done = run_without(("pyspark", "pyarrow"), code)
    assert done.stdout.strip() == "3", done.stderr


def test_a_query_names_the_job_of_its_last_micro_batch(redis_server: PrivateRedis, client: redis.Redis) -> None:
    """A streaming query, or one of its progresses, stands for a job; before its first micro-batch for none."""
    progress: Any = SimpleNamespace(id="a-b", batchId=7)
    query: Any = SimpleNamespace(id="a-b", lastProgress=progress)
    store = DelayStore(client)
    jobs(store).enqueue("q", begun(store, "a-b/7"), several(3))
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
    jobs(store).enqueue("q", begun(store, "nightly"), several(3))
    broker, options = named(redis_server.url)
    found = job(broker, "nightly", **options)
    assert found is not None
    assert (found.state, found.sent, found.rows) == ("running", 3, None)
    assert job(broker, "other", **options) is None
