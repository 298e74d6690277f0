"""What the thread of the heartbeat and the one that consumes use together."""

import os
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kombu_delayq.consume import lost
from kombu_delayq.consume.consumer import Consumer
from kombu_delayq.consume.lost import LostRequests
from kombu_delayq.consume.waits import WaitBudget, Waits
from kombu_delayq.store.types import InFlight, Request
from tests.support.conditions import DEADLINE_S

ME = "host:1:aaaaaaaa"


@pytest.fixture
def waits() -> Waits:
    """The waits of a consumer that has no connections."""
    return Waits(cast(Any, None), WaitBudget(0), lambda commands, on_replies: None, bool)


def withdrawing(withdraw: Any) -> Any:
    """Returns a store that withdraws in-flight lists with a function."""
    return SimpleNamespace(fetching=SimpleNamespace(withdraw=withdraw))


def test_messages_may_land_while_waits_end(waits: Waits) -> None:
    """What lands while the other thread goes through the in-flight lists is an error for neither, and stays noted."""

    class Meddling(InFlight):
        @property
        def queue(self) -> str:  # type: ignore[override]
            waits._arrived.add(InFlight("b", 0, ME))
            return str(self[0])

    emptied: list[Any] = []
    waits._arrived.add(Meddling("a", 0, ME))
    waits.end(withdrawing(lambda clients, in_flight: emptied.extend(in_flight)), is_own_thread=False)
    assert emptied == [("a", 0, ME)]
    assert waits.arrived == {("b", 0, ME)}


def test_what_lands_while_lists_are_emptied_stays_noted(waits: Waits) -> None:
    """A message that lands in a list, after Redis has emptied it for the other thread, is looked for."""
    in_flight = InFlight("a", 0, ME)
    waits._arrived.add(in_flight)
    waits.may_have_more = False
    waits.end(withdrawing(lambda clients, in_flight: waits._arrived.add(in_flight)), is_own_thread=False)
    assert waits.may_have_more


def test_lists_that_could_not_be_emptied_stay_noted(waits: Waits) -> None:
    """When Redis does not answer the thread that empties lists, the messages there are looked for all the same."""

    def fail(*_: Any) -> None:
        raise OSError("away")

    waits._arrived.add(InFlight("a", 0, ME))
    with pytest.raises(OSError, match="away"):
        waits.end(withdrawing(fail), is_own_thread=False)
    assert waits.arrived == {("a", 0, ME)}


def test_both_threads_may_put_back_what_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request whose reply was lost is forgotten once, by whichever thread is first."""
    monkeypatch.setattr(lost, "UNSURE_S", -1.0)
    requests, asked = LostRequests(), []

    def recover(request: Request) -> None:
        asked.append(request)
        if len(asked) == 1:
            requests.recover(store)

    store: Any = SimpleNamespace(fetching=SimpleNamespace(recover=recover), keys=SimpleNamespace(slot_group=str))
    requests.add(Request(ME, 1, 1, ["a"]))
    requests.recover(store)
    requests.recover(store)
    assert len(asked) == 2


def test_a_fork_while_a_lease_is_renewed_holds_up_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that was forked while the heartbeat held the lock takes a lease of its own."""
    consumer = Consumer(list)
    consumers_of_redis = SimpleNamespace(heartbeat=lambda *_, **__: True, note_queues=bool)
    store: Any = SimpleNamespace(consumers=consumers_of_redis, keys=SimpleNamespace(slot_group=str))
    name = consumer.name
    with consumer._lock, consumer._numbering:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        child = Thread(target=consumer.renew, args=(store, ""), daemon=True)
        child.start()
        child.join(DEADLINE_S)
        assert not child.is_alive()
        assert consumer.numbers(1) == 1
    assert consumer.name != name


def test_numbers_do_not_wait_for_redis() -> None:
    """While the heartbeat waits for a Redis that hangs, the loop gets numbers for what it takes elsewhere."""
    is_asked, may_go_on, got = Event(), Event(), Event()

    def hang(*_: Any, **__: Any) -> bool:
        is_asked.set()
        return may_go_on.wait(2 * DEADLINE_S)

    consumers_of_redis = SimpleNamespace(heartbeat=hang, note_queues=bool)
    store: Any = SimpleNamespace(consumers=consumers_of_redis, keys=SimpleNamespace(slot_group=str))
    consumer = Consumer(lambda: ["orders"])
    heartbeat = Thread(target=consumer.renew, args=(store, ""), daemon=True)
    heartbeat.start()
    assert is_asked.wait(DEADLINE_S)
    Thread(target=lambda: (consumer.numbers(3), got.set()), daemon=True).start()
    assert got.wait(DEADLINE_S)
    assert consumer.numbers(1) == 4
    may_go_on.set()
    heartbeat.join(DEADLINE_S)
