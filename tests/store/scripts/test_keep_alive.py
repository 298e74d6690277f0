"""How long the keys of a queue with ``x-expires`` live, and ``keep_alive.lua``, which puts off when they end."""

from collections.abc import Callable

import pytest

from celery_ext.spark.job_types import JobRun
from kombu_delayq.store import DelayStore
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Offer
from tests.support.store.fixtures import MakeStore
from tests.support.store.jobs import jobs
from tests.support.store.keyspace import DUE, clock_ms, contents, in_form, only, waiting
from tests.support.store.layouts import other_layout

#: An x-expires, a shorter one that is longer than any test takes, and an hour.
EXPIRE_MS, SHORT_MS, HOUR_MS = 600_000, 120_000, 3_600_000
#: How long a test may take.
PATIENCE_MS = 60_000


def left_ms(store: DelayStore, *keys: str) -> set[int]:
    """Returns the PTTL of each key of the queue ``q`` that there is, by default of all that have messages."""
    found = (store.client.pttl(key) for key in keys or LAYOUT_OF[store.layout].keys(store.keys, "q"))
    return {each for each in found if each != -2}


def lives(store: DelayStore, latest_ms: float, expire_ms: float = EXPIRE_MS, longer_ms: float = PATIENCE_MS) -> None:
    """Checks that all keys live at least until the latest message is due, and x-expires more, and not much longer."""
    found = left_ms(store)  # before the clock is read, which goes on
    wanted = latest_ms - clock_ms(store.client) + expire_ms
    assert found
    assert all(wanted - 1 <= each <= wanted + longer_ms for each in found)


def later(store: DelayStore, by_ms: float = HOUR_MS) -> float:
    return round(clock_ms(store.client) + by_ms)


def job(store: DelayStore) -> JobRun:
    run = JobRun("j", jobs(store).new_run(), ttl_ms=60_000)
    jobs(store).begin(run)
    return run


def adopt(store: DelayStore, due_ms: float) -> None:
    assert store.delivery.adopt("q", waiting("late", due_ms), "", EXPIRE_MS)


def convert(store: DelayStore, due_ms: float) -> None:
    source = DelayStore(store.client, store.keys, options=store.options.__class__(layout=other_layout(store)))
    source.delivery.offer("q", waiting("late", due_ms), expire_ms=EXPIRE_MS)
    assert store.queues.convert("q").moved == 1


#: What brings a message that is due later than all others into a queue.
LATER: dict[str, Callable[[DelayStore, float], object]] = {
    "offer": lambda store, due_ms: store.delivery.offer("q", waiting("late", due_ms), expire_ms=EXPIRE_MS),
    "offer, x-expires unknown": lambda store, due_ms: store.delivery.offer("q", waiting("late", due_ms)),
    "step": lambda store, due_ms: store.chains.step("q", "chain", waiting("late", due_ms, "chain"), EXPIRE_MS),
    "adopt": adopt,
    "adopt, x-expires unknown": lambda store, due_ms: store.delivery.adopt("q", waiting("late", due_ms), ""),
    "reschedule": lambda store, due_ms: store.lookup.reschedule("q", [Change(only(store, "i"), due_ms, b"new")]),
    "convert": convert,
    "enqueue": lambda store, due_ms: jobs(store).enqueue("q", job(store), [waiting("late", due_ms)]),
}


@pytest.mark.parametrize("bring", LATER.values(), ids=list(LATER))
def test_a_queue_outlives_its_latest_message(store: DelayStore, bring: Callable[[DelayStore, float], object]) -> None:
    """Whatever brings a message into an expiring queue, its keys live until that is due, and x-expires more."""
    soon_ms = later(store, PATIENCE_MS)
    store.delivery.offer("q", waiting("i", soon_ms, priority=3), waiting("j", soon_ms), expire_ms=EXPIRE_MS)
    lives(store, soon_ms)
    due_ms = later(store)
    bring(store, due_ms)
    lives(store, due_ms)


def test_a_shorter_time_shortens_nothing(store: DelayStore) -> None:
    """Neither an offer with a shorter x-expires, nor a consumer that has one, lets a queue end sooner."""
    store.delivery.offer("q", waiting("i", later(store, PATIENCE_MS), priority=3), expire_ms=HOUR_MS)
    before = min(left_ms(store))
    store.delivery.offer("q", waiting("j", later(store, PATIENCE_MS)), expire_ms=1_000)
    store.queues.keep_alive("q", 1_000)
    assert min(left_ms(store)) > before - PATIENCE_MS


@pytest.mark.parametrize("due_ms", [1e17, float("inf")])
def test_a_due_time_that_is_never_makes_a_queue_endless(store: DelayStore, due_ms: float) -> None:
    """A message that is due beyond all times that Redis can count is stored, and its queue does not expire."""
    store.delivery.offer("q", waiting("i", later(store, PATIENCE_MS)), expire_ms=EXPIRE_MS)
    store.delivery.offer("q", Offer("never", repr(due_ms), 0, "body"), expire_ms=EXPIRE_MS)
    assert left_ms(store, in_form(store, DUE)) == {-1}


@pytest.mark.parametrize("bring", ["offer", "keep_alive"])
def test_what_has_no_end_gets_one_from_who_knows_it(store: DelayStore, bring: str) -> None:
    """Messages that came without x-expires live by that of the next publisher or consumer who has it."""
    due_ms = later(store)
    store.delivery.offer("q", waiting("i", due_ms), waiting("i", due_ms, "two"))
    assert left_ms(store) == {-1}
    if bring == "offer":
        store.delivery.offer("q", waiting("j", 1.0), expire_ms=EXPIRE_MS)
    else:
        store.queues.keep_alive("q", EXPIRE_MS)
    lives(store, due_ms)


def test_keys_that_somebody_lets_end_early_keep_an_end(store: DelayStore) -> None:
    """After an EXPIRE by hand, keys live as long again behind their messages, and not without end."""
    due_ms = later(store)
    store.delivery.offer("q", waiting("i", due_ms, priority=3), expire_ms=EXPIRE_MS)
    for key in LAYOUT_OF[store.layout].keys(store.keys, "q"):
        store.client.pexpire(key, SHORT_MS)
    store.delivery.offer("q", waiting("j", due_ms))
    lives(store, due_ms, SHORT_MS - PATIENCE_MS, 2 * PATIENCE_MS)  # a part of the time has passed


def test_the_first_message_without_an_end_ends_with_nothing_of_its_forerunners(store: DelayStore) -> None:
    """What is left of messages that expired with their queue lets no part of later ones expire."""
    store.delivery.offer("q", waiting("i", later(store, -1_000), priority=3), expire_ms=EXPIRE_MS)
    assert store.delivery.transfer("q").moved == 1
    store.delivery.offer("q", waiting("j", priority=3))
    assert left_ms(store) == {-1}


def test_overdue_messages_are_kept_while_somebody_consumes(store: DelayStore) -> None:
    """While nobody transfers, a consumer puts off the end of what has been due for long."""
    store.delivery.offer("q", waiting("i", 1.0), expire_ms=SHORT_MS)
    now_ms = clock_ms(store.client)
    store.queues.keep_alive("q", EXPIRE_MS)
    lives(store, now_ms)


def test_a_queue_that_is_not_there_stays_so(store: DelayStore) -> None:
    """``keep_alive`` makes no keys but, in Redisson's layout, the queue's name."""
    store.queues.keep_alive("q", EXPIRE_MS)
    assert contents(store.client) == ({} if store.layout == "hash" else {b"{delayq}:queues": {b"q"}})


def test_both_forms_are_kept_alive(make_store: MakeStore) -> None:
    """A consumer keeps messages in either layout."""
    for layout in ("hash", "redisson"):
        make_store(layout=layout).delivery.offer("q", waiting("i", 1.0), expire_ms=SHORT_MS)
    make_store().queues.keep_alive("q", EXPIRE_MS)
    for layout in ("hash", "redisson"):
        assert min(left_ms(make_store(layout=layout))) > SHORT_MS


def delivered(store: DelayStore, operation: str) -> None:
    """Brings a message into the ready list of the queue."""
    if operation == "transfer":
        assert store.delivery.transfer("q").moved == 1
    else:
        assert store.lookup.run_now("q", [Change(only(store, "i"), 0.0, b"new")]) == ["transferred"]


@pytest.mark.parametrize("operation", ["transfer", "run_now"])
def test_a_ready_list_expires_no_sooner_for_what_is_delivered(store: DelayStore, operation: str) -> None:
    """A list that has a longer time left keeps it; one that has less, or is new, gets the time of x-expires."""
    for before_ms, least, most in (
        (HOUR_MS, HOUR_MS - PATIENCE_MS, HOUR_MS),
        (SHORT_MS, EXPIRE_MS - PATIENCE_MS, EXPIRE_MS),
        (None, EXPIRE_MS - PATIENCE_MS, EXPIRE_MS),
    ):
        store.client.delete("q")
        if before_ms is not None:
            store.client.lpush("q", "ready")
            store.client.pexpire("q", before_ms)
        store.delivery.offer("q", waiting("i", later(store, -1.0)), expire_ms=EXPIRE_MS)
        delivered(store, operation)
        [left] = left_ms(store, "q")
        assert least <= left <= most


@pytest.mark.parametrize("operation", ["transfer", "run_now"])
def test_a_ready_list_without_an_end_keeps_none(store: DelayStore, operation: str) -> None:
    """What a publisher without x-expires has put there does not expire for a message that a transfer puts beside it."""
    store.client.lpush("q", "ready")
    store.delivery.offer("q", waiting("i", 1.0), expire_ms=EXPIRE_MS)
    delivered(store, operation)
    assert left_ms(store, "q") == {-1}


def test_a_ready_list_lives_for_x_expires_whatever_waits_behind_it(store: DelayStore) -> None:
    """Messages that wait for an hour do not let ready ones live for an hour."""
    store.delivery.offer("q", waiting("i", 1.0), waiting("late", later(store)), expire_ms=EXPIRE_MS)
    assert store.delivery.transfer("q").moved == 1
    [left] = left_ms(store, "q")
    assert EXPIRE_MS - PATIENCE_MS <= left <= EXPIRE_MS + 1_000  # Redis may read its clock at another moment for each
