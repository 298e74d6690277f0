"""What cannot go back stays and is logged, and holds up nothing else."""

import logging

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.consumers import http_consumer
from kombu_delayq.store.types import Offer
from tests.support.conditions import stays, until
from tests.support.store.consuming import ME, OTHER
from tests.support.workers.held import CONSUMED, CONSUMERS, UNACKED
from tests.support.workers.reclaiming import LOG, Reclaim, dead_with, gone, logged, numbers, publish


def test_a_note_that_cannot_be_read_stays(
    store: DelayStore, reclaim: Reclaim, caplog: pytest.LogCaptureFixture
) -> None:
    """What somebody else has noted under a consumer's tag stays for `delayq repair`, with a line in the log."""
    publish(store, 3)
    dead_with(store, 3)
    store.client.hset(UNACKED, f"{ME}.1", "no note")
    store.client.hset(UNACKED, f"{ME}.3", '[{}, "exchange", "key"]')
    with caplog.at_level(logging.WARNING, LOG):
        reclaim()
        until(lambda: gone(store))
    assert numbers(store) == [1]
    assert set(store.client.hkeys(UNACKED)) == {f"{ME}.1".encode(), f"{ME}.3".encode()}
    [record] = logged(caplog)
    assert record.endswith(
        f"Of what it held, 1 went back (1 to 'q'); 2 cannot be read and stay for `delayq repair`, among them {ME}.1"
    )


def test_one_warning_tells_of_a_dead_consumer(
    store: DelayStore, reclaim: Reclaim, caplog: pytest.LogCaptureFixture
) -> None:
    """It names host and process, and how many messages went to which queue."""
    for queue, count in (("b", 2), ("a", 1)):
        publish(store, count, queue)
    dead_with(store, 3, "b", "a")
    began = f"consumer {ME}, which was process 1 on host host, is dead or was silent for too long. Of what it held, "
    with caplog.at_level(logging.INFO, LOG):
        reclaim()
        until(lambda: gone(store))
    assert logged(caplog) == [began + "3 went back (1 to 'a', 2 to 'b')"]


def test_one_warning_tells_of_a_lease_that_ended(
    store: DelayStore, reclaim: Reclaim, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a consumer over HTTP it names the lease, not a process and a host, which nobody knows."""
    publish(store, 1)
    dead_with(store, 1, name=(consumer := http_consumer("billing", "1-00ff")))
    with caplog.at_level(logging.INFO, LOG):
        reclaim()
        until(lambda: gone(store, consumer))
    assert logged(caplog) == [
        "lease http:billing:1-00ff of a consumer over HTTP has ended before all of its messages were acknowledged. Of "
        "these, 1 went back (1 to 'q')"
    ]


def test_a_queue_of_the_wrong_type_holds_up_no_other(
    store: DelayStore, reclaim: Reclaim, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages of that queue stay in hand, with one line in the log, until the key is gone; all others go back."""
    publish(store, 2, "a")
    publish(store, 2, "b")
    dead_with(store, 4, "a", "b")
    publish(store, 1, "c")
    dead_with(store, 1, "c", name=OTHER)
    store.client.sadd("a", "somebody else's")
    with caplog.at_level(logging.ERROR, LOG):
        reclaim()
        until(lambda: gone(store, OTHER))
        until(lambda: store.client.llen("b") == 2)
        held = store.keys.unacked("a")
        stays(lambda: store.client.hlen(held) == 2 and not gone(store), 0.5)
    [record] = logged(caplog)
    assert record.startswith(f"some messages of the dead consumer {ME} stay in hand: WRONGTYPE key a holds a set")
    store.client.delete("a")
    until(lambda: gone(store))
    assert [numbers(store, queue) for queue in "abc"] == [[0, 1], [0, 1], [0]]


def test_leases_of_the_wrong_type_stop_no_delivery(
    store: DelayStore, reclaim: Reclaim, caplog: pytest.LogCaptureFixture
) -> None:
    """Where somebody else's key is in the place of the leases, messages are delivered, and it is logged once."""
    store.consumers.note_queues(["q"])
    store.client.set(CONSUMERS, "somebody else's")
    with caplog.at_level(logging.ERROR, LOG):
        reclaim()
        store.delivery.offer("q", Offer("i", "+500", 0, "body"))
        until(lambda: store.client.llen("q"))
    [record] = logged(caplog)
    assert record.startswith("what dead consumers held is not given back: ")


def test_a_name_of_another_form_is_no_error(store: DelayStore, reclaim: Reclaim) -> None:
    """Whatever else is among the consumers goes when its time has come."""
    store.consumers.note_queues(["q"])
    store.client.zadd(CONSUMERS, {b"\xff": 1, "": 2, "x": 3})
    store.client.hset(CONSUMED, b"\xff", "no JSON")
    reclaim()
    until(lambda: not store.client.exists(CONSUMERS, CONSUMED))
