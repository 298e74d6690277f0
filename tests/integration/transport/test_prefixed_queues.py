"""Key prefixes and databases, and what kombu and Celery do with whole queues, on each kind of broker."""

import sys
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from amqp.exceptions import ChannelError
from celery import Celery
from celery.bin.celery import celery
from click.testing import CliRunner
from kombu import Exchange, Queue

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.text import as_text
from tests.support.conditions import stays
from tests.support.looped import publish
from tests.support.workers.harness import MakeProj, Proj

PRIORITIES = (0, 3, 9)


@pytest.fixture(scope="module")
def plain() -> Iterator[PrivateRedis]:
    """A server that is no cluster."""
    with PrivateRedis(slots=False) as server:
        yield server


@pytest.fixture(params=["plain", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    """URL of a broker without keys."""
    if request.param == "cluster":
        return str(request.getfixturevalue("cluster").url)
    server = request.getfixturevalue("plain")
    server.client().flushall()
    return str(server.url).replace("redis://", "delayq://")


@pytest.fixture(params=["", "app:"])
def app(url: str, request: pytest.FixtureRequest) -> Iterator[Celery]:
    """An app; and another one with another prefix has the same queues, with a message in each list."""
    other = made(url, "" if request.param else "other:")
    fill(other, "orders")
    with made(url, request.param) as app:
        yield app
    assert counts(other, "orders") == (len(PRIORITIES), 1)
    other.close()


def made(url: str, prefix: str | None) -> Celery:
    """Makes an app with a prefix."""
    app = Celery("prefixed", broker=url, set_as_current=False)
    options: dict[str, Any] = {} if prefix == "" else {"global_keyprefix": prefix}
    app.conf.update(broker_transport_options=options, task_default_queue="orders", result_backend=None)
    return app


def fill(app: Celery, queue: str) -> None:
    """Publishes a message of each priority, and a delayed one."""
    with app.connection_for_write() as connection:
        for priority in PRIORITIES:
            publish(connection, queue, priority, priority=priority)
    app.send_task("later", queue=queue, countdown=600)


def counts(app: Celery, queue: str) -> tuple[int, int]:
    """Counts the ready messages of a queue, and those that are delayed."""
    with app.connection_for_write() as connection:
        store = connection.default_channel.store
        return store.fetching.ready([queue])[0], store.queues.size(queue)


def keys_with(app: Celery, name: str) -> list[str]:
    """Returns the keys of an app that contain a name, those of the other app left out."""
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        found = map(as_text, channel.store.client.scan_iter(match=f"{channel.global_keyprefix}*{name}*"))
        return [key for key in found if not key.startswith("other:")]


def amqp(app: Celery, *command: str) -> str:
    """Runs ``celery amqp``, and returns what it prints."""
    module = sys.modules["prefixed_app"] = ModuleType("prefixed_app")
    module.app = app  # type: ignore[attr-defined]
    found = CliRunner().invoke(celery, ["-A", "prefixed_app:app", "amqp", *command], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_a_prefix_of_none_is_no_prefix(url: str) -> None:
    """With ``global_keyprefix=None`` an app publishes and reads as one without that option, as with stock kombu."""
    with made(url, None) as app, made(url, "") as same:
        fill(app, "orders")
        assert counts(app, "orders") == counts(same, "orders") == (len(PRIORITIES), 1)


def test_a_queue_is_there_if_any_list_has_a_message(app: Celery) -> None:
    """A passive declaration finds a queue by a message of any priority, and no queue of another prefix."""
    with app.connection_for_write() as connection:
        channel = connection.channel()
        with pytest.raises(ChannelError, match="NOT_FOUND"):
            channel.queue_declare("orders", passive=True)
        for priority in PRIORITIES:
            publish(connection, "orders", 1, priority=priority)
            assert channel.queue_declare("orders", passive=True).message_count == 1
            assert channel.basic_get("orders", no_ack=True) is not None
            with pytest.raises(ChannelError, match="NOT_FOUND"):
                channel.queue_declare("orders", passive=True)


def test_a_queue_is_deleted(app: Celery) -> None:
    """Its messages and its binding are gone; a queue with messages stays if only an empty one is to go."""
    app.send_task("later", queue="orders", countdown=600)
    with app.connection_for_write() as connection:
        bound = Queue("orders", Exchange("shop", type="direct"), routing_key="orders")
        declared = bound(connection.default_channel)
        declared.declare()
        declared.delete(if_empty=True)
        assert counts(app, "orders") == (0, 1)
        for priority in PRIORITIES:
            publish(connection, "orders", priority, priority=priority)
        declared.delete(if_empty=True)
        assert counts(app, "orders") == (len(PRIORITIES), 1)
        assert any("_kombu.binding" in key for key in keys_with(app, "shop"))
        declared.delete()
        assert counts(app, "orders") == (0, 0)
        assert not keys_with(app, "shop")
        # kombu deletes the bindings that its connection has declared. Those of other publishers stay.
        assert not [key for key in keys_with(app, "orders") if "_kombu.binding" not in key]


def test_celery_purges(app: Celery) -> None:
    """``app.control.purge`` counts and removes what its own queues hold."""
    fill(app, "orders")
    assert app.control.purge() == len(PRIORITIES) + 1
    assert counts(app, "orders") == (0, 0)


#: What stands before the prefix in names of Redisson's layout.
REDISSON = ("redisson_delay_queue:{", "redisson_delay_queue_timeout:{")


def _in_db(make_proj: MakeProj, url: str, db: int, prefix: str) -> Proj:
    options: dict[str, Any] = {"global_keyprefix": prefix} if prefix else {}
    return make_proj(broker_url=url.removesuffix("/0") + f"/{db}", broker_transport_options=options)


@pytest.mark.both_layouts
@pytest.mark.journey
def test_apps_that_share_a_redis_keep_apart(make_proj: MakeProj, proj: Proj) -> None:
    """A prefix and a database number hold for all keys; nothing that another app delayed is ever touched.

    What the apps have in common is the queue's name.
    """
    url = proj.server.url
    ours = _in_db(make_proj, url, 3, "ours:")
    others = [_in_db(make_proj, url, 3, "theirs:"), _in_db(make_proj, url, 3, ""), _in_db(make_proj, url, 4, "ours:")]
    ours.worker()
    due = time.time() + 1
    for other in others:
        other.send("record", "other", countdown=1)
    ours.send("record", "normal", countdown=1)
    ours.send("record", "urgent", countdown=1, priority=9)
    retried = ours.send("flaky", 1, kwargs={"countdown": 1})

    runs = ours.await_runs(4)
    assert sorted(str(run.get("value")) for run in runs) == ["None", "None", "normal", "urgent"]
    assert all(run["at"] >= due for run in runs if run.get("value"))
    assert retried.get(timeout=60) == 1
    stays(lambda: [other.delayed() for other in others] == [1, 1, 1], 0.5)
    assert len(ours.runs()) == 4
    assert [ours.delayed(), proj.delayed()] == [0, 0]
    keys = set(proj.server.client(3).scan_iter()) - set(proj.keys())
    known = [f"{before}{prefix}" for before in ("", *REDISSON) for prefix in ("ours:", "theirs:")]
    strangers = {key for key in keys if not key.startswith(tuple(known))}
    assert strangers <= {"{delayq}:queues", "_kombu.binding.celery", "_kombu.binding_permanent.celery"}
    assert not set(proj.server.client(0).scan_iter())
