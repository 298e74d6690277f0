"""Dead letters that are replayed, with a journal of all messages, before and after a loss of Redis."""

import json

import pytest

from celery_ext.dead_letters import DeadLetter, letters
from celery_ext.dead_letters.store import Letter
from celery_ext.journal import JournaledStore
from kombu_delayq.message.letter_record import Reason, record
from kombu_delayq.store.types import Offer
from tests.support.conditions import until
from tests.support.journal.stores import Promoter, body_of, delivered, in_redis, offer, restored
from tests.support.store.keyspace import clock_ms

pytestmark = pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)

LETTERS = "letters"


def buried(identity: str, queue: str) -> bytes:
    """Makes the message of a task that has failed, as it is among the dead letters."""
    message = json.loads(body_of(identity))
    message["properties"]["dead_letter"] = record(
        Reason.FAILED, "no", retries=0, exchange="", routing_key=queue, worker=None
    )
    return json.dumps(message).encode()


def replayed(store: JournaledStore) -> list[str]:
    """Sends all dead letters to the queue from which they came. Returns their ids."""

    def decide(letter: DeadLetter) -> Letter:
        return letters.to_queue(letter, "q", as_before=True)

    wanted, _ = letters.choose(letters.browse(store, LETTERS), lambda _: True, decide)
    return [letter.id for letter, _ in letters.replay(store, LETTERS, wanted, decide)]


def after_a_loss(store: JournaledStore, overdue: str = "run") -> int:
    """Lets Redis lose its data, restores and promotes. Returns how many messages came back."""
    store.client.flushall()
    promoter = Promoter(store).heartbeat()
    done = restored(store, overdue=overdue, dead_letters=LETTERS)
    promoter.promote()
    return done.restored + done.dead_letters


def test_a_replayed_letter_is_not_doubled(journaled_store: JournaledStore) -> None:
    """A task ran, failed, was buried and replayed: after a loss only a retry comes back that waits since then, once."""
    store = journaled_store
    promoter = Promoter(store).heartbeat()
    now_ms = clock_ms(store.client)
    store.delivery.offer("q", offer("retried", now_ms + 1), offer("queued", now_ms + 1))
    until(lambda: len(delivered(store)) == 2)
    store.client.delete("q")  # both ran, and failed
    for identity in ("retried", "queued"):
        store.client.lpush(LETTERS, buried(identity, "q"))
    promoter.heartbeat()
    assert replayed(store) == ["retried", "queued"]
    identity, queued = delivered(store)  # new ids
    assert (identity.partition("~")[0], queued.partition("~")[0]) == ("retried", "queued")
    retry = json.loads(store.client.rpop("q"))
    retry["headers"]["retries"] = 1
    store.delivery.offer("q", Offer(identity, repr(now_ms + 600_000), 0, json.dumps(retry)))

    assert after_a_loss(store) == 1
    assert (in_redis(store), delivered(store), delivered(store, LETTERS)) == ([identity], [], [])
    [row] = store.redis_alone.lookup.get(["q"], [identity])[identity]
    assert json.loads(row.body or b"")["headers"]["retries"] == 1


def test_a_letter_of_a_restore_is_replayed_once(journaled_store: JournaledStore) -> None:
    """A message that a restore buried was replayed: after the next loss neither it nor its letter comes back."""
    store = journaled_store
    Promoter(store).heartbeat()
    store.delivery.offer("q", offer("late", clock_ms(store.client) + 1))
    assert after_a_loss(store, "dead-letter") == 1
    assert delivered(store, LETTERS) == ["late"]
    assert replayed(store) == ["late"]
    assert [identity.partition("~")[0] for identity in delivered(store)] == ["late"]
    Promoter(store).heartbeat()
    assert after_a_loss(store) == 0
    assert (delivered(store), delivered(store, LETTERS)) == ([], [])
