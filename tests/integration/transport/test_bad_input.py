"""Messages whose time cannot be read, is out of bounds, or that are sent twice."""

import time
from collections.abc import Callable

import pytest
import redis

from celery_ext import select
from kombu_delayq import DelayTooLong, UnsupportedRedis
from kombu_delayq.message.fields import to_json
from tests.support.conditions import until
from tests.support.messages import task_message
from tests.support.servers.proxies import old_redis
from tests.support.workers.consumers import none_held
from tests.support.workers.harness import MakeProj, Proj

pytestmark = [pytest.mark.wide, pytest.mark.both_layouts]

YEAR_9999 = "9999-12-31T23:59:59.999999"
#: Etas that no worker can read: each ends in an error in the worker's log, as with stock Celery.
UNREADABLE = ["soon", "2026-13-45T99:00:00", " ", 12345, 1.5e12, True, ["2030-01-01"], {"at": "2030-01-01"}]
#: Bodies, each with what it says about its encoding.
UNDECODABLE = [("a", "base64"), ("YQ==", "rot13"), (5, "base64"), ({"args": []}, "base64"), (5, None), (0, None)]
#: Etas that are past.
PAST = ["1960-01-01T00:00:00+00:00", "1969-12-31T23:59:59.999999", "2001-02-03T04:05:06Z", None]
#: Etas after the last one that a datetime can name in UTC included.
FAR = [f"{YEAR_9999}+00:00", f"{YEAR_9999}-12:00", f"{YEAR_9999}+14:00", "3000-01-01"]


def _dues_ms(proj: Proj) -> list[float]:
    raw = redis.Redis(port=proj.server.port)
    return [due for _, due in raw.zrange(proj.keys()[0], 0, -1, withscores=True)]


def _publish_task(proj: Proj, eta: object, task_id: str) -> None:
    """Publishes a task as another language would, with whatever eta."""
    headers = {"lang": "go", "task": "proj.record", "id": task_id, "root_id": task_id, "eta": eta}
    with proj.connection() as connection:
        connection.Producer(serializer="json").publish(([task_id], {}, {}), routing_key="celery", headers=headers)


def test_every_eta_gives_a_run_a_wait_or_an_error(proj: Proj) -> None:
    """Past etas run, far ones wait in Redis, unreadable ones are reported by the worker, which lives."""
    worker = proj.worker(
        broker_transport_options={**proj.conf.get("broker_transport_options", {}), "unknown_ttl": None}
    )
    for number, eta in enumerate(UNREADABLE):
        _publish_task(proj, eta, f"unreadable-{number}")
    for number, eta in enumerate(PAST):
        _publish_task(proj, eta, f"past-{number}")
    for number, eta in enumerate(FAR):
        _publish_task(proj, eta, f"far-{number}")
    same = [proj.send("record", f"same-{number}", countdown=1, task_id="same") for number in range(2)]
    assert same[0].id == same[1].id
    proj.await_runs(len(PAST) + 2)
    until(lambda: all(f"unreadable-{number}" in worker.log for number in range(len(UNREADABLE))), what="reported")
    assert sorted(run["value"] for run in proj.runs()) == sorted(
        [*(f"past-{number}" for number in range(len(PAST))), "same-0", "same-1"]
    )
    far = list(select(proj.app, queues="celery"))
    assert sorted(task.id for task in far) == [f"far-{number}" for number in range(len(FAR))]
    assert proj.lengths() == (len(FAR), len(FAR))
    assert all(due > 32e12 for due in _dues_ms(proj))
    assert "the transfer worker failed" not in worker.log
    assert worker.stop() == 0


def test_a_body_that_cannot_be_decoded_is_reported(proj: Proj) -> None:
    """A message of a program that does not encode as kombu does ends no worker, which runs what comes behind it."""
    options = {**proj.conf.get("broker_transport_options", {}), "unknown_ttl": None}
    worker, client = proj.worker(broker_transport_options=options), proj.server.client()
    for body, encoding in UNDECODABLE:
        message = task_message() | {"body": body}
        message["properties"] |= {"body_encoding": encoding, "delivery_info": {}, "delivery_tag": "tag"}
        client.lpush("celery", to_json(message))
    proj.send("record", "behind")
    proj.await_runs(1)
    until(lambda: none_held(client), what="all acknowledged")
    assert worker.log.count("Can't decode message body") == len(UNDECODABLE)
    assert worker.stop() == 0


def test_longest_delay(make_proj: MakeProj) -> None:
    """A delay above ``max_delay`` raises DelayTooLong and stores nothing; one below it is stored."""
    proj = make_proj(broker_transport_options={"max_delay": 60})
    far: list[Callable[[], object]] = [
        lambda: proj.send("record", countdown=61),
        lambda: proj.send("record", eta=time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 65))),
        lambda: _publish_task(proj, f"{YEAR_9999}-12:00", "far"),
    ]
    for publish in far:
        with pytest.raises(DelayTooLong, match="max_delay allows, 60 s"):
            publish()
    with proj.connection() as connection, pytest.raises(DelayTooLong):
        connection.Producer().publish({}, routing_key="celery", DelaySeconds=60.5)
    assert not proj.server.client().exists(*proj.keys(), "celery")
    proj.send("record", countdown=59)
    assert proj.lengths() == (1, 1)


def test_old_redis_is_refused(make_proj: MakeProj) -> None:
    """With Redis before 6.2 publishing raises, a worker says critically why, and what is not delayed still works."""
    server = make_proj().server
    with old_redis(server.port) as proxy:
        proj = make_proj(broker_url=proxy.url)
        with pytest.raises(UnsupportedRedis, match=r"Redis 6\.0\.\d+ is too old for kombu-delayq, which needs 6\.2"):
            proj.send("record", countdown=5)
        assert not server.client().exists(*proj.keys())
        worker = proj.worker()
        until(lambda: "no transfer worker runs in this process: Redis 6.0." in worker.log, what="said why")
        assert "CRITICAL" in worker.log
        proj.send("record", "now")
        proj.await_runs(1)
        assert worker.alive()
