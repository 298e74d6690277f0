"""``celery_ext.DeadLetters``: dead letters from Python."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import islice
from math import inf, nan
from time import monotonic
from typing import Any

import pytest
from celery import Celery
from celery.app.task import Context
from kombu.exceptions import OperationalError
from redis.exceptions import ConnectionError as RedisConnectionError

from celery_ext import DeadLetters, cancel, install
from celery_ext.connection import open_store
from celery_ext.dead_letters import Choice, DeadLetter
from celery_ext.dead_letters import letters as letters_of
from celery_ext.dead_letters.burying import bury
from celery_ext.dead_letters.store import Letter, LetterStore
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.errors import DelayChainCancelled, InvalidQueueName
from kombu_delayq.message.letter_record import Reason
from tests.support.workers.harness import TRANSPORT


def work(number: int) -> None:
    """The tasks; nobody runs them."""


@pytest.fixture
def app() -> Iterator[Celery]:
    with PrivateRedis() as server, Celery("shop", broker=server.url, set_as_current=False) as app:
        app.conf.broker_transport = TRANSPORT
        install(app)
        for name in ("mail", "bill"):
            app.task(work, name=f"shop.{name}", dead_letter_queue=f"dead-{name}")
        yield app


def bury_some(
    app: Celery, name: str, *ids: str, error: str = "no address", exchange: str = "", routing_key: str | None = None
) -> None:
    """Buries tasks as a worker does."""
    task = app.tasks[f"shop.{name}"]
    for task_id in ids:
        info = {"exchange": exchange, "routing_key": routing_key or name}
        request = Context(
            id=task_id, args=[1], kwargs={}, retries=3, hostname="w1", delivery_info=info, called_directly=False
        )
        bury(task, request, Reason.FAILED, ValueError(error))


def test_letters_are_listed_and_found(app: Celery) -> None:
    """They come queue by queue, the oldest first, by task, error and age, also that of then; one is found by its id."""
    letters = DeadLetters(app)
    bury_some(app, "mail", *(f"m{number}" for number in range(120)))
    bury_some(app, "bill", "b0", error="customer")
    assert letters.queues() == {"dead-bill": 1, "dead-mail": 120, "dead_letters": 0}
    assert [letter.id for letter in letters.list()] == ["b0", *(f"m{number}" for number in range(120))]
    assert [letter.id for letter in letters.list("dead-mail", limit=2)] == ["m0", "m1"]
    assert [letter.id for letter in letters.list(error="CUSTOMER")] == ["b0"]
    assert [letter.id for letter in letters.list(task="*.bill", newer_than=timedelta(hours=1))] == ["b0"]
    assert list(letters.list(older_than=3600)) == []
    found = letters.get("b0")
    assert found is not None
    assert found.at is not None
    begun_at = found.at + timedelta(seconds=90)
    assert Choice(older_than_s=60, until=begun_at)(found)
    assert not Choice(newer_than_s=60, until=begun_at)(found)
    assert (found.name, found.buried_in, found.error) == ("shop.bill", "dead-bill", "ValueError: customer")
    assert letters.get("nobody") is None


def test_letters_may_be_dropped_while_they_are_listed(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever drops each letter that it sees comes to all of them, though they are read a page at a time."""
    monkeypatch.setattr("celery_ext.dead_letters.control.LETTERS_PAGE", 5)
    letters, ids = DeadLetters(app), [f"m{number}" for number in range(19)]
    bury_some(app, "mail", *ids)
    assert [letter.id for letter in letters.list("dead-mail") if letters.drop(letter.id)] == ids


def test_a_cancel_names_a_dead_letter(app: Celery) -> None:
    """An id that does not wait is looked up among the dead letters, which stay; one that waits as well is cancelled."""
    odd, others = 'ü "b"', [f"nobody {number}" for number in range(30)]
    bury_some(app, "mail", "buried", odd, "sent again")
    app.tasks["shop.mail"].apply_async((1,), countdown=300, task_id="sent again")
    outcomes = {"buried": "dead_letter", odd: "dead_letter", "sent again": "cancelled", "nobody": "not_delayed"}
    assert cancel(app, [*outcomes]) == outcomes
    outcomes |= {"sent again": "dead_letter", **dict.fromkeys(others, "not_delayed")}
    assert cancel(app, [*outcomes]) == outcomes
    assert DeadLetters(app).queues()["dead-mail"] == 3


def test_a_replay_begins_a_cancelled_chain_anew(app: Celery) -> None:
    """The chain of a cancelled id takes no step, also when the task is sent again, until its letter is replayed."""
    bury_some(app, "mail", "m0")
    assert cancel(app, "m0") == "dead_letter"
    app.tasks["shop.mail"].apply_async((1,), task_id="m0", delay_chain="1h")
    step = {"task_id": "m0", "retries": 1, "countdown": 300, "delay_chain": "1h", "delay_chain_id": "any"}
    with pytest.raises(DelayChainCancelled):
        app.tasks["shop.mail"].apply_async((1,), **step)
    assert DeadLetters(app).replay("m0") == {"replayed": 1, "unroutable": 0}
    app.tasks["shop.mail"].apply_async((1,), **step)
    assert cancel(app, "m0") == "cancelled"


def test_letters_are_replayed_and_dropped(app: Celery) -> None:
    """Those that are named go back to their queues, at the pace that is asked for, or to another one, or away."""
    letters = DeadLetters(app)
    bury_some(app, "mail", *(f"m{number}" for number in range(12)))
    bury_some(app, "bill", "b0", "b1")
    assert letters.replay(["m3", "b1", "nobody"]) == {"replayed": 2, "unroutable": 0}
    begun = monotonic()
    assert letters.replay(task="shop.mail", rate=20) == {"replayed": 11, "unroutable": 0}
    assert monotonic() - begun >= 10 / 20
    assert letters.replay("b0", to_queue="other") == {"replayed": 1, "unroutable": 0}
    assert letters.queues() == {"dead-bill": 0, "dead-mail": 0, "dead_letters": 0}
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        assert [channel._size(queue) for queue in ("mail", "bill", "other")] == [12, 1, 1]
    bury_some(app, "bill", "b2", "b3")
    assert letters.drop("b2") == 1
    assert letters.drop(error="no address") == 1
    assert letters.drop(queue="dead-bill") == 0


def test_a_change_beside_another_round_misses_no_letter(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits until the other round, which takes letters while it looks which it means, is over."""
    bury_some(app, "mail", *(f"m{number}" for number in range(250)))
    page, hold, others = LetterStore.page, LetterStore._hold, [True]

    def go_on(most: int | None) -> None:
        """Lets the other round go on: by so many letters, or to its end."""
        if others and others.pop() and len(list(islice(other, most))) == most:
            others.append(True)

    def page_between(store: LetterStore, *args: Any, **options: Any) -> list[bytes]:
        found = page(store, *args, **options)
        go_on(10)
        return found

    def hold_after(store: LetterStore, queue: str, name: str) -> bool:
        go_on(None)
        return hold(store, queue, name)

    def is_older(letter: DeadLetter) -> bool:
        return int(letter.id[1:]) < 150

    with app.connection_for_read() as connection:
        store = open_store(connection)
        chosen, _ = letters_of.choose(letters_of.browse(store, "dead-mail"), is_older, letters_of.away)
        other = letters_of.replay(store, "dead-mail", chosen, letters_of.away)
        next(other)
        monkeypatch.setattr(LetterStore, "page", page_between)
        monkeypatch.setattr(LetterStore, "_hold", hold_after)
        assert DeadLetters(app).drop(["m160", "m220"]) == 2
        monkeypatch.undo()
        assert [letter.id for letter in DeadLetters(app).list("dead-mail")] == [
            f"m{number}" for number in range(150, 250) if number not in (160, 220)
        ]


def test_a_change_that_ends_half_way_leaves_the_order(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it the oldest letters still stand where the oldest stand, so that retention drops these."""
    ids, replay, calls = [f"m{number}" for number in range(250)], LetterStore.replay, list[int]()
    for task_id in ids:
        bury_some(app, "mail", task_id, error=f"customer {int(task_id[1:]) % 2}")

    def ends(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise RedisConnectionError("the caller dies")
        return replay(*args)

    letters = DeadLetters(app)
    monkeypatch.setattr(LetterStore, "replay", ends)
    with pytest.raises(OperationalError):
        letters.drop(error="customer 1")
    assert [letter.id for letter in letters.list("dead-mail")] == [*ids[:100:2], *ids[100:]]
    with app.connection_for_read() as connection:
        assert open_store(connection).part(LetterStore).prune("dead-mail", None, 60) == 140
    assert [letter.id for letter in letters.list("dead-mail")] == ids[-60:]


def test_one_letter_by_its_id_leaves_the_others_where_they_are(app: Celery) -> None:
    """Redis gets no letter to write for those that stay: the time depends on the letter, not on the queue."""
    letters = DeadLetters(app)
    bury_some(app, "mail", *(f"m{number}" for number in range(500)))
    with app.connection_for_read() as connection:
        redis = open_store(connection).client
        [key] = redis.keys("dead-mail*")
        size = sum(map(len, redis.lrange(key, 0, -1)))
        before = redis.info("stats")["total_net_input_bytes"]
        assert letters.drop("m250") == 1
        assert redis.info("stats")["total_net_input_bytes"] - before < size / 10


def test_a_letter_that_has_no_way_back_stays(app: Celery, caplog: pytest.LogCaptureFixture) -> None:
    """If its exchange leads to no queue now, nothing has changed, so the audit has no line of it."""
    caplog.set_level("INFO", "kombu_delayq.audit")
    bury_some(app, "mail", "m0", exchange="gone")
    assert DeadLetters(app).replay("m0") == {"replayed": 0, "unroutable": 1}
    assert [record.message for record in caplog.records if record.name == "kombu_delayq.audit"] == []


def test_letters_that_stay_do_not_hold_up_a_pace(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow replay passes by what is not meant in large pages, and lets one letter leave at a time."""
    bury_some(app, "mail", *(f"m{number}" for number in range(250)))
    moved, replay = list[list[int]](), LetterStore.replay

    def noting(store: LetterStore, queue: str, key: str, letters: Mapping[int, Letter]) -> list[int]:
        moved.append([*letters])
        return replay(store, queue, key, letters)

    monkeypatch.setattr(LetterStore, "replay", noting)
    assert DeadLetters(app).replay(["m150", "m151"], rate=1.9) == {"replayed": 2, "unroutable": 0}
    assert [page for page in moved if page] == [[150], [150]]
    assert len(moved) < 10
    letters = DeadLetters(app)
    assert [letter.id for letter in letters.list(limit=3)] == ["m0", "m1", "m2"]
    assert letters.queues()["dead-mail"] == 248


def test_a_letter_that_fails_where_it_lies_is_not_buried_again(app: Celery, caplog: pytest.LogCaptureFixture) -> None:
    """A worker that consumes the queue of dead letters would run it without end, so its failure is only logged."""
    bury_some(app, "mail", "m0", routing_key="dead-mail")
    bury_some(app, "mail", "m1", exchange="other", routing_key="dead-mail")
    assert [letter.id for letter in DeadLetters(app).list("dead-mail")] == ["m1"]
    assert "shop.mail[m0] has failed in 'dead-mail', where its dead letters are" in caplog.text


def test_all_letters_have_to_be_asked_for(app: Celery) -> None:
    """A call that says nothing changes nothing, nor does one with too slow a pace, or a queue that cannot be."""
    letters = DeadLetters(app)
    bury_some(app, "bill", "b0")
    wrong: Any
    for wrong in (letters.replay, letters.drop):
        with pytest.raises(ValueError, match="which dead letters"):
            wrong()
        with pytest.raises(TypeError, match=rf"DeadLetters.{wrong.__name__}\(\) got an unexpected .* 'all'"):
            wrong(all=True)
    assert (letters.replay([], queue="dead-bill")["replayed"], letters.drop(iter(()), queue="dead-bill")) == (0, 0)
    for rate in (0.01, inf, nan):
        with pytest.raises(ValueError, match="letters a second"):
            letters.replay("b0", rate=rate)
    with pytest.raises(InvalidQueueName, match="paused"):
        letters.replay("b0", to_queue="{delayq}:paused")
    assert letters.queues()["dead-bill"] == 1
