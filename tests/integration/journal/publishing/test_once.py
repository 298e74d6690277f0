"""One task once while it waits, in the journal, in Redis, or on its way: of an id one message is left, and its row."""

import json
from collections import Counter
from threading import Thread
from time import time
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from celery_ext.journal import JournaledStore
from kombu_delayq.message.once import Once, new_id
from kombu_delayq.store.delivery import Delivery
from kombu_delayq.store.types import Offer
from tests.support.journal.stores import DAY_MS, HOUR_MS, MakeJournaled, Promoter, addition, body_of, in_redis, restored
from tests.support.store.keyspace import outcomes


def message(body: str, days: float = 40.0, identity: str = "i") -> Offer:
    """Makes a message that is due in some days; more than one is far."""
    return Offer(identity, repr(time() * 1000 + days * DAY_MS), 0, body_of(body))


def led(store: JournaledStore) -> JournaledStore:
    """Lets a promoter lead at the queue, so that Redis takes rows."""
    Promoter(store).heartbeat().leadership.enter("q")
    return store


def bodies(store: JournaledStore) -> list[bytes | None]:
    """Returns what waits under the id, wherever it does."""
    return [one.body for one in store.lookup.get(["q"], ["i"]).get("i", [])]


def row_bodies(store: JournaledStore) -> list[bytes]:
    """Returns what the journal would restore, or promote."""
    return [row.body for row in store.journal.get(["i"], None)]


@pytest.mark.parametrize("journal_url", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize(("is_led", "is_repeated"), [(True, False), (False, False), (False, True)])
@pytest.mark.parametrize(("mode", "word", "left"), [("keep", "kept", "old"), ("replace", "replaced", "new")])
def test_what_waits_in_the_journal_is_seen(
    make_journaled: MakeJournaled, mode: str, word: Once, left: str, is_led: bool, is_repeated: bool
) -> None:
    """A far message is kept or replaced, before a promoter has led, too; of other ids and queues nothing changes."""
    store = make_journaled()
    if is_led:
        led(store)
    store.delivery.offer("q", old := message("old"), message("other", identity="other"))
    store.delivery.offer("other", message("elsewhere"))
    if is_repeated:
        assert outcomes(store.delivery.offer_once("q", mode, old)) == ["added"]
    assert outcomes(store.delivery.offer_once("q", mode, message("new", 50), message("j", 50, "j"))) == [word, "added"]
    assert bodies(store) == [body_of(left)]
    assert sorted(row_bodies(store)) == sorted([body_of(left), body_of("elsewhere")])
    assert [row.id for row in store.journal.get(["i", "j", "other"]) if row.queue == "q"] == (
        ["other"] if is_led or mode == "replace" else ["i", "other"]
    )
    assert outcomes(store.delivery.offer_once("q", mode, message("last", 0.01))) == [word]
    assert bodies(store) == [body_of("old" if mode == "keep" else "last")]
    cancelled = store.lookup.cancel(["q"], ["i"])["i"]
    assert [one.queue for one in cancelled] == ["q", "other"]  # the journal is searched in all queues
    assert bodies(store) == row_bodies(store) == []


@pytest.mark.parametrize("journal_url", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("is_led", [True, False])
def test_tasks_of_a_key_are_found_by_it_in_the_journal(make_journaled: MakeJournaled, is_led: bool) -> None:
    """What waits in the journal under a key keeps out a task of another id, and is found and cancelled by the key."""
    store = make_journaled()
    if is_led:
        led(store)
    first, second, third, last = ids = [new_id("k") for _ in range(4)]
    others = [message(one, identity=one) for one in ("other", "k~j", "k~kitchen", "k~l", "ka", "k~" + "0" * 16)]
    store.delivery.offer("q", message(first, identity=first), *others)
    assert store.delivery.offer_once("q", "keep", message(second, 50, second)) == [("kept", first)]
    assert {row.id for row in store.journal.get(["k"], None)} == {first}
    assert store.delivery.offer_once("q", "replace", message(third, 50, third)) == [("replaced", third)]
    store.delivery.offer("q", message(last, identity=last))
    assert {row.id for row in store.journal.get(["k"], None)} == {third, last}
    assert {one.id for one in store.lookup.get(["q"], ["k"])["k"]} == {third, last}
    assert store.lookup.get(["q"], ids[:2]) == {}
    assert [one.id for one in store.lookup.cancel(["q"], [last])[last]] == [last]
    assert [one.id for one in store.lookup.cancel(["q"], ["k"])["k"]] == [third]
    assert {row.id for row in store.journal.get([*ids, *(one.id for one in others)], None)} == {
        one.id for one in others
    }


@pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("days", [0.5, 40.0])
@pytest.mark.parametrize("is_led", [True, False])
def test_what_has_expired_goes_with_its_row(make_journaled: MakeJournaled, is_led: bool, days: float) -> None:
    """Wherever a message waits that can never run, it keeps nothing out, and nothing of it is left."""
    store = make_journaled(journal="all")
    if is_led:
        led(store)
    expired = message("old", days)
    body = {**json.loads(expired.body), "headers": {"id": "i", "expires": "2020-01-01T00:00:00+00:00"}}
    store.delivery.offer("q", expired._replace(body=json.dumps(body)))
    assert outcomes(store.delivery.offer_once("q", "keep", message("new", days))) == ["added"]
    assert bodies(store) == row_bodies(store) == [body_of("new")]


@pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("journal", "layout"), [("far", "hash"), ("all", "redisson")])
def test_rows_follow_what_redis_decides(make_journaled: MakeJournaled, journal: str, layout: str) -> None:
    """After a loss of Redis just the message comes back that waited, not one that was kept out or replaced."""
    store = led(make_journaled(journal=journal, layout=layout))
    days = 0.5 if journal == "all" else 40.0
    calls = [("keep", "a", "added"), ("keep", "b", "kept"), ("replace", "c", "replaced"), ("keep", "d", "kept")]
    for mode, body, word in calls:
        assert outcomes(store.delivery.offer_once("q", mode, message(body, days))) == [word]
    assert row_bodies(store) == [body_of("c")]
    page = [message(body, days + 1) for body in "xyz"]
    assert outcomes(store.delivery.offer_once("q", "replace", *page, page[0])) == ["replaced"] * 4
    assert row_bodies(store) == bodies(store) == [body_of("x")]
    Promoter(store).heartbeat()
    store.client.flushall()
    Promoter(store).heartbeat()
    assert restored(store)[:5] == (1, 1, 0, 0, 0)
    assert bodies(store) == [body_of("x")]


@pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)
def test_a_call_whose_answer_is_lost_is_repeated(
    make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second attempt finds what the first has stored, and counts it as added; no row is left of what is not there."""
    store, one, other = led(make_journaled(journal="all")), message("a"), message("b")
    real = Delivery.offer_once_returning

    def fails(offered: Offer, error: type[Exception], *, first: bool = False) -> None:
        def failing(*args: Any, **keywords: Any) -> None:
            if first:
                real(*args, **keywords)
            raise error

        monkeypatch.setattr(Delivery, "offer_once_returning", failing)
        with pytest.raises(error):
            store.delivery.offer_once("q", "keep", offered)
        monkeypatch.setattr(Delivery, "offer_once_returning", real)

    fails(one, ResponseError)
    assert row_bodies(store) == []
    fails(one, RedisConnectionError, first=True)
    assert outcomes(store.delivery.offer_once("q", "keep", one)) == ["added"]
    fails(other, RedisConnectionError)
    assert outcomes(store.delivery.offer_once("q", "keep", other)) == ["kept"]
    assert bodies(store) == row_bodies(store) == [body_of("a")]


@pytest.mark.parametrize("journal_url", ["sqlite", "postgres"], indirect=True)
def test_of_many_callers_one_message_is_left_while_it_is_promoted(make_journaled: MakeJournaled) -> None:
    """Callers that keep and replace agree with each other and with a promoter: each id is added once, or was there."""
    store, ids = led(make_journaled()), [f"i{n}" for n in range(30)]
    store.journal.add([addition(one, store.now_ms() + HOUR_MS / 4) for one in ids[::2]])  # to be promoted now
    words, failures = Counter[str](), list[BaseException]()

    def call(own: JournaledStore, mode: str, days: float) -> None:
        try:
            for one in ids:
                [word] = own.delivery.offer_once("q", mode, message(f"{mode} {days} {one}", days, one))
                words[f"{one} {word.outcome}"] += 1
        except BaseException as error:
            failures.append(error)

    ways = [("keep", 0.5), ("keep", 40), ("replace", 0.5), ("replace", 40)]
    threads = [Thread(target=call, args=(make_journaled(), *way)) for way in ways]
    for thread in threads:
        thread.start()
    promoting = make_journaled()  # one for all: each has connections until the end of the test
    while any(thread.is_alive() for thread in threads):
        Promoter(promoting).heartbeat().promote()
    for thread in threads:
        thread.join()
    assert failures == []
    Promoter(make_journaled()).heartbeat().promote()
    assert sorted(in_redis(store)) == sorted(ids)
    assert store.journal.get(ids) == []
    assert {one: words[f"{one} added"] for one in ids} == {one: n % 2 for n, one in enumerate(ids)}
