"""What is due late and stands in a plain queue goes to the journal; a far task has all that Celery adds."""

import json
import logging
from pathlib import Path
from time import time
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal import JournaledStore
from celery_ext.journal.errors import DatabaseUnavailable
from kombu_delayq.message.unacked import redelivered
from kombu_delayq.store.types import Offer
from tests.integration.journal.publishing.test_tiers import far, near, rows
from tests.support.conditions import until
from tests.support.journal.stores import MakeJournaled, in_redis
from tests.support.workers.events import captured
from tests.support.workers.held import INDEX, UNACKED


def hold(store: JournaledStore, tag: str) -> None:
    index, unacked = INDEX, UNACKED
    store.client.zadd(index, {tag: time()})
    store.client.hset(unacked, tag, "held")


def held(store: JournaledStore) -> tuple[int, int]:
    index, unacked = INDEX, UNACKED
    return int(store.client.zcard(index)), int(store.client.hlen(unacked))


@pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("tag", ["tag", ""])
def test_a_far_message_leaves_its_consumer(make_journaled: MakeJournaled, tag: str) -> None:
    """The row comes, then the message leaves the hands of its consumer; one without acknowledgements has none."""
    store = make_journaled()
    if tag:
        hold(store, tag)
    assert store.delivery.adopt("q", far(), tag) == "behind"
    assert (rows(store, "far"), held(store), in_redis(store)) == ([("far", True)], (0, 0), [])
    if tag:
        assert store.delivery.adopt("q", far("other"), tag) == "gone"
        assert rows(store, "other") == []


@pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)
def test_a_consumer_that_died_half_way_doubles_nothing(make_journaled: MakeJournaled) -> None:
    """The row was written and the message came back to its queue, redelivered: the next consumer adds no row."""
    store = make_journaled()
    one = far()
    store.delivery.adopt("q", one, "")
    again = redelivered(json.loads(one.body), **{"x-delivery-count": 1})
    again["properties"]["delivery_tag"] = "another"
    hold(store, "tag")
    assert store.delivery.adopt("q", one._replace(body=json.dumps(again)), "tag") == "behind"
    assert (rows(store, "far"), held(store)) == ([("far", True)], (0, 0))


@pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)
def test_a_message_that_is_due_leaves_no_row(make_journaled: MakeJournaled) -> None:
    """By Redis's clock it is due already and stays with its consumer."""
    store = make_journaled(journal="all")
    hold(store, "tag")
    assert store.delivery.adopt("q", Offer("i", "1000", 0, far().body), "tag") == "due"
    assert (rows(store, "i"), held(store)) == ([], (1, 1))
    assert store.delivery.adopt("q", near(), "tag") == "first"
    assert (rows(store, "near"), held(store)) == ([("near", False)], (0, 0))


@pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)
def test_without_the_database_redis_takes_it(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer has nobody to tell an error, so the message waits in Redis, and the log says so."""
    store = make_journaled()
    hold(store, "tag")

    def away(*_: object, **__: object) -> object:
        raise DatabaseUnavailable("away")

    monkeypatch.setattr(store.journal, "add", away)
    with caplog.at_level(logging.WARNING):
        assert store.delivery.adopt("q", far(), "tag") == "first"
    assert (in_redis(store), held(store)) == (["far"], (0, 0))
    assert "the journal does not take a message of queue 'q', which waits in Redis now: away. So do" in caplog.text


def test_headers_and_events_of_a_far_task(own_server: PrivateRedis, tmp_path: Path) -> None:
    """The row has the headers of tracers, the event task-sent is sent, and the result backend stays untouched."""
    client = own_server.client()
    app = Celery(broker=own_server.url, backend=own_server.url, broker_transport=TRANSPORT)
    app.conf.broker_transport_options = {"journal_url": f"sqlite:///{tmp_path}/journal.db"}
    app.conf.task_send_sent_event = True
    proj: Any = SimpleNamespace(app=app)
    headers = {"sentry-trace": "1-2-1", "traceparent": "00-1-2-01", "baggage": "a=b"}
    with captured(proj) as events:
        until(lambda: client.pubsub_numpat() + len(client.pubsub_channels("*celeryev*")), what="the events are heard")
        sent = app.send_task("t", countdown=40 * 86_400, headers=headers)
        until(lambda: [event["uuid"] for event in events if event["type"] == "task-sent"] == [sent.id])
    with app.connection_for_write() as connection:
        [row] = connection.default_channel.store.journal.get([sent.id])
    assert headers.items() <= json.loads(row.body)["headers"].items()
    assert sent.state == "PENDING"
    assert not client.keys("celery-task-meta-*")
    sent.forget()
