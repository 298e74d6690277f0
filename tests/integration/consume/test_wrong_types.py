"""What would end a worker at its start: a full Redis, or a key of the wrong type in the place of one that all share."""

import json

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import stays, until
from tests.support.workers.harness import MakeProj, Proj

pytestmark = pytest.mark.wide

#: What a worker uses all the time, and what it needs at its start alone.
RUNNING = [
    *("{delayq}:paused", "{delayq}:consumers", "{delayq}:consumers:queues", "unacked", "unacked_index"),
    *("celery", "celery\x06\x163"),
]
AT_START = ["_kombu.binding.celery", "_kombu.binding.celery.pidbox", "{delayq}:consumers", "unacked_index", "celery"]


def put_wrong(client: redis.Redis, key: str) -> None:
    """Replaces a key by one of another type; its value is lost."""
    client.delete(key)
    client.xadd(key, {"in": "the way"})


def runs(proj: Proj, value: str) -> None:
    """Waits until a task has run that is sent now."""
    proj.send("record", value)
    proj.await_runs(1, value=value)


def test_a_worker_outlives_keys_of_the_wrong_type(make_proj: MakeProj) -> None:
    """While it runs: each key is named, the worker lives, and takes tasks again once the key is away."""
    proj = make_proj(broker_transport_options={"consumer_ttl": 4})
    client, worker = proj.server.client(), proj.worker(concurrency=1)
    for number, key in enumerate(RUNNING):
        before = len(worker.log)
        put_wrong(client, key)
        if not key.startswith("celery"):
            proj.send("record", "meanwhile")
        until(lambda key=key, before=before: f"key {key} holds a stream" in worker.log[before:], 30, f"{key!r} named")
        stays(worker.alive, 1.5, f"it lives with {key!r}")
        client.delete(key)
        runs(proj, f"after {number}")
    assert "Traceback" not in worker.log


@pytest.mark.parametrize("key", AT_START)
def test_a_worker_starts_once_the_key_is_away(make_proj: MakeProj, key: str) -> None:
    """At its start it names the key, as doctor and status do, does not end, and consumes when the key is away."""
    proj = make_proj()
    put_wrong(proj.server.client(), key)
    worker = proj.worker(concurrency=1, wait=False)
    until(lambda: f"key {key} holds a stream" in worker.log or not worker.alive(), 60, "the key is named")
    status = json.loads(proj.celery("delayq", "status", "--json", code=1))
    assert any(f"key {key} holds a stream" in wrong for wrong in status["wrong_keys"]) or key == "celery"
    assert f"{key} " in proj.celery("delayq", "doctor", code=1)
    assert worker.alive(), worker.log[-2000:]
    proj.server.client().delete(key)
    worker.ready()
    runs(proj, "after")
    assert worker.stop() == 0


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_a_worker_starts_once_redis_has_room(make_proj: MakeProj, own_server: PrivateRedis, pool: str) -> None:
    """It says so, does not end, and consumes then; told to stop meanwhile, it does."""
    proj = make_proj(own_server)
    client = own_server.client()
    client.config_set("maxmemory", 1)
    workers = [proj.worker(pool=pool, wait=False) for _ in range(2)]
    for worker in workers:
        until(lambda worker=worker: "while Redis is full" in worker.log or not worker.alive(), 60, "it says so")
        assert worker.alive(), worker.log[-2000:]
    assert workers[0].stop() == 0
    client.config_set("maxmemory", 0)
    workers[1].ready()
    runs(proj, "after")
    assert workers[1].stop() == 0


@pytest.mark.parametrize("key", ["{delayq}:queues", "{delayq}:transfer"])
def test_status_names_a_key_without_which_it_knows_nothing(make_proj: MakeProj, key: str) -> None:
    """Where there can be no report at all, the error names the key."""
    proj = make_proj()
    put_wrong(proj.server.client(), key)
    done = proj.program("-m", "celery", "-A", "proj", "delayq", "status", code=1)
    assert f"key {key} holds a stream" in done.stderr
