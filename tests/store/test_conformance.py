"""What every store does alike: Redis in each layout, the store in memory, and Redis with a journal."""

import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.journal import JournaledStore
from celery_ext.journal.database import engine_of, parse_url
from celery_ext.testing.memory_store import MemoryStore
from celery_ext.waiting import by_id
from kombu_delayq.options import LAYOUTS
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Waiting
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, outcomes, waiting
from tests.support.store.tuned import tuned

#: A store of any kind. Messages that are due far in the future wait in the journal, where there is one.
AnyStore = Any


@pytest.fixture(params=[*LAYOUTS, "memory", "journal"])
def store(request: pytest.FixtureRequest, plain_server: PrivateRedis, tmp_path: Path) -> Iterator[AnyStore]:
    """An empty store of each kind."""
    client = redis.Redis(port=plain_server.port)
    client.flushall()
    made: AnyStore
    if request.param == "memory":
        made = MemoryStore(tuned(), lambda: time.time() * 1000, lambda message: None)
    elif request.param == "journal":
        url = f"sqlite:///{tmp_path}/journal.db"
        made = JournaledStore(client, Keys(), (0, 3, 6, 9), tuned(journal_url=url, journal="all"))
    else:
        made = DelayStore(client, Keys(), (0, 3, 6, 9), tuned(layout=request.param))
    yield made
    made.close()
    client.close()
    if request.param == "journal":
        engine_of(parse_url(url)).dispose()


def _kept(store: AnyStore, queue: str = "q") -> list[tuple[str, float, int, bytes | None]]:
    """Returns id, due time in ms, priority and body of each message of a queue, in order."""
    return [tuple(message)[1:5] for message in by_id.browse(store, queue)]


def _found(store: AnyStore, identity: str) -> Waiting:
    [message] = chain.from_iterable(store.lookup.get(["q", "other"], [identity]).values())
    return message


def test_messages_wait_by_due_time_each_in_its_queue(store: AnyStore) -> None:
    """A queue holds its own messages, the earliest first, with due time, priority and body as they were offered."""
    store.delivery.offer(
        "q", waiting("late", FUTURE_MS + 2, body="l"), waiting("soon", FUTURE_MS, priority=3, body="s")
    )
    store.delivery.offer("other", waiting("apart", FUTURE_MS + 1, body="a"))
    assert _kept(store) == [("soon", FUTURE_MS, 3, b"s"), ("late", FUTURE_MS + 2, 0, b"l")]
    assert _kept(store, "other") == [("apart", FUTURE_MS + 1, 0, b"a")]
    assert (store.queues.size("q"), store.queues.size("other"), store.queues.size("none")) == (2, 1, 0)
    assert store.scan.count("q", FUTURE_MS + 1) == 1


def test_the_same_message_waits_once(store: AnyStore) -> None:
    """A message that is offered again is no second one; another one of its id is."""
    for body in ("one", "one", "two"):
        store.delivery.offer("q", waiting("i", FUTURE_MS, body=body))
    assert sorted(body for *_, body in _kept(store)) == [b"one", b"two"]


def test_an_id_finds_its_message(store: AnyStore) -> None:
    """A message is found by its id in the queues that are asked for, and what does not wait is not found."""
    store.delivery.offer("q", waiting("i", FUTURE_MS, body="b"))
    assert tuple(_found(store, "i"))[:5] == ("q", "i", FUTURE_MS, 0, b"b")
    assert store.lookup.get(["other"], ["i"]) == {}
    assert store.lookup.get(["q"], ["unknown"]) == {}


def test_a_cancelled_task_does_not_wait(store: AnyStore) -> None:
    """A cancel removes the message and says so; of what does not wait it says that, too."""
    store.delivery.offer("q", waiting("i", FUTURE_MS), waiting("j", FUTURE_MS))
    outcomes = {one.id: one.outcome for one in by_id.cancel(store, ["i", "unknown"])}
    assert outcomes["i"] != outcomes["unknown"]
    assert [one.outcome for one in by_id.cancel(store, ["i"])] == [outcomes["unknown"]]
    assert [identity for identity, *_ in _kept(store)] == ["j"]


def test_a_message_is_rescheduled_as_it_was_read(store: AnyStore) -> None:
    """A message gets a new due time and body, and one that has changed since it was read keeps its own."""
    store.delivery.offer("q", waiting("i", FUTURE_MS, body="old"))
    read = _found(store, "i")
    done = store.lookup.reschedule("q", [Change(read, FUTURE_MS + 5, b"new")])
    late = store.lookup.reschedule("q", [Change(read, FUTURE_MS + 9, b"newer")])
    assert done != late
    assert _kept(store) == [("i", FUTURE_MS + 5, 0, b"new")]


def test_a_message_that_is_discarded_is_gone(store: AnyStore) -> None:
    """A message is discarded as it was read, and one that has changed since stays."""
    store.delivery.offer("q", waiting("i", FUTURE_MS), waiting("j", FUTURE_MS))
    read = _found(store, "i")
    store.lookup.discard("q", [(read, ""), (_found(store, "j")._replace(body=b"older"), "")])
    assert [identity for identity, *_ in _kept(store)] == ["j"]


def test_a_message_that_runs_now_waits_no_longer(store: AnyStore) -> None:
    """A message that is pushed before its time has left, or is due by now and left to who promotes."""
    store.delivery.offer("q", waiting("i", FUTURE_MS))
    store.lookup.run_now("q", [Change(_found(store, "i"), PAST_MS, b"now")])
    assert [one for one in _kept(store) if one[1] > (time.time() + 60) * 1000] == []


def test_a_transfer_takes_what_is_due(store: AnyStore) -> None:
    """A transfer moves messages whose time has come, and no others."""
    store.delivery.offer("q", waiting("due", PAST_MS), waiting("early", FUTURE_MS))
    assert store.delivery.transfer("q").moved == 1
    assert [identity for identity, *_ in _kept(store)] == ["early"]


def test_a_purge_empties_one_queue(store: AnyStore) -> None:
    """A purge counts what it removes, and leaves other queues alone."""
    store.delivery.offer("q", waiting("i", FUTURE_MS), waiting("j", FUTURE_MS))
    store.delivery.offer("other", waiting("k", FUTURE_MS))
    assert store.queues.purge("q") == 2
    assert (_kept(store), store.queues.size("other")) == ([], 1)


def test_pages_have_each_message_once(store: AnyStore) -> None:
    """Page after page, a reader sees every message of a queue once, in order."""
    store.delivery.offer("q", *(waiting(str(number), FUTURE_MS + number) for number in range(7)))
    page, seen = store.scan.browse("q", count=3), []
    seen += page.messages
    while page.more:
        page = store.scan.browse("q", page, count=3)
        seen += page.messages
    assert [message.id for message in seen] == [str(number) for number in range(7)]


def test_one_message_of_an_id_waits_once(store: AnyStore) -> None:
    """``offer_once`` keeps or replaces what waits, wherever it waits."""
    words = [
        outcomes(store.delivery.offer_once("q", "keep", waiting("i", body=body))) for body in ("one", "two", "one")
    ]
    assert words == [["added"], ["kept"], ["added"]]
    assert outcomes(store.delivery.offer_once("q", "replace", waiting("i", FUTURE_MS + 5, "three", 3))) == ["replaced"]
    assert _kept(store) == [("i", FUTURE_MS + 5, 3, b"three")]
