"""What is due late and stands in a plain queue goes to the journal."""

import json
import logging
from time import time

import pytest
from sqlalchemy.exc import OperationalError

from celery_ext.journal import JournaledStore
from kombu_delayq.message.unacked import redelivered
from kombu_delayq.store.types import Offer
from tests.integration.journal.publishing.test_tiers import far, near, rows
from tests.support.journal.stores import MakeJournaled, in_redis
from tests.support.workers.held import INDEX, UNACKED

pytestmark = pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)


def hold(store: JournaledStore, tag: str) -> None:
    index, unacked = INDEX, UNACKED
    store.client.zadd(index, {tag: time()})
    store.client.hset(unacked, tag, "held")


def held(store: JournaledStore) -> tuple[int, int]:
    index, unacked = INDEX, UNACKED
    return int(store.client.zcard(index)), int(store.client.hlen(unacked))


@pytest.mark.parametrize("tag", ["tag", ""])
def test_a_far_message_leaves_its_consumer(make_journaled: MakeJournaled, tag: str) -> None:
    """The row comes, then the message leaves the hands of its consumer; one without acknowledgements has none."""
    store = make_journaled()
    if tag:
        hold(store, tag)
    assert store.delivery.adopt("q", far(), tag, INDEX, UNACKED) == "behind"
    assert (rows(store, "far"), held(store), in_redis(store)) == ([("far", True)], (0, 0), [])
    if tag:
        assert store.delivery.adopt("q", far("other"), tag, INDEX, UNACKED) == "gone"
        assert rows(store, "other") == []


def test_a_consumer_that_died_half_way_doubles_nothing(make_journaled: MakeJournaled) -> None:
    """The row was written and the message came back to its queue, redelivered: the next consumer adds no row."""
    store = make_journaled()
    one = far()
    store.delivery.adopt("q", one, "", INDEX, UNACKED)
    again = redelivered(json.loads(one.body), **{"x-delivery-count": 1})
    again["properties"]["delivery_tag"] = "another"
    hold(store, "tag")
    assert store.delivery.adopt("q", one._replace(body=json.dumps(again)), "tag", INDEX, UNACKED) == "behind"
    assert (rows(store, "far"), held(store)) == ([("far", True)], (0, 0))


def test_a_message_that_is_due_leaves_no_row(make_journaled: MakeJournaled) -> None:
    """By Redis's clock it is due already and stays with its consumer."""
    store = make_journaled(journal="all")
    hold(store, "tag")
    assert store.delivery.adopt("q", Offer("i", "1000", 0, far().body), "tag", INDEX, UNACKED) == "due"
    assert (rows(store, "i"), held(store)) == ([], (1, 1))
    assert store.delivery.adopt("q", near(), "tag", INDEX, UNACKED) == "first"
    assert (rows(store, "near"), held(store)) == ([("near", False)], (0, 0))


def test_without_the_database_redis_takes_it(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer has nobody to tell an error, so the message waits in Redis, and the log says so."""
    store = make_journaled()
    hold(store, "tag")

    def away(*_: object, **__: object) -> object:
        raise OperationalError("INSERT", None, OSError("away"))

    monkeypatch.setattr(store.journal, "add", away)
    with caplog.at_level(logging.WARNING):
        assert store.delivery.adopt("q", far(), "tag", INDEX, UNACKED) == "first"
    assert (in_redis(store), held(store)) == (["far"], (0, 0))
    assert (
        "the journal does not take a message of queue 'q', which waits in Redis now: JournalUnavailable" in caplog.text
    )
