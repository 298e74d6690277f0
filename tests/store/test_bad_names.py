"""Names of queues that are no UTF-8, as others may put them into the registry of queues and into announcements."""

import pytest
import redis

from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Change
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, Ear, by_queue, popped, waiting

#: As bytes, and as text.
BAD, NAME = b"\xff\xfe {x\x80", "\udcff\udcfe {x\udc80"


def test_every_operation_takes_such_a_name(store: DelayStore) -> None:
    """Messages of a queue whose name is no UTF-8 are stored, found, changed, counted, transferred and purged."""
    store.offer(NAME, waiting("later"), waiting("now"), waiting("i", PAST_MS), expire_ms=600_000)
    assert store.client.smembers("delayq:queues") == {BAD}
    assert store.queues() == [NAME]
    assert store.lead("name").queues == [NAME]
    assert store.all_quiet([NAME], [NAME]) is False
    assert by_queue(store.heads([NAME])) == {NAME: PAST_MS}
    store.keep_alive(NAME, 600_000)
    assert store.transfer(NAME).moved == 1
    later, now = (store.get([NAME], [each])[each][0] for each in ("later", "now"))
    assert (later.queue, now.queue) == (NAME, NAME)
    assert store.reschedule(NAME, [Change(later, FUTURE_MS + 1, b"new")]) == ["rescheduled"]
    assert store.run_now(NAME, [Change(now, 0.0, b"new")]) == ["transferred"]
    assert [each.id for each in store.browse(NAME).messages] == ["later"]
    assert (store.size(NAME), store.count(NAME), sum(store.sizes([NAME]).values())) == (1, 1, 1)
    assert (store.stats(NAME).delayed, store.stats(NAME).ready) == (1, 2)
    assert sum(store.dead_letter_lists(NAME).values()) == 2
    assert store.kept_forms(NAME) == [store.backup]
    assert store.convert(NAME, store.other_backup).moved == 1
    assert popped(store.client, BAD) == [b"body of i", b"new"]
    assert store.cancel([NAME], ["later"])["later"][0].queue == NAME
    assert store.purge(NAME) == 0
    assert store.queues() == []


def test_a_search_goes_through_other_queues_all_the_same(store: DelayStore) -> None:
    """A task is found and cancelled by its id while the registry has a name that is no UTF-8."""
    store.client.sadd("delayq:queues", BAD, b"")
    store.offer("q", waiting("i"))
    assert list(store.get(store.queues(), ["i"])) == ["i"]
    assert list(store.cancel(store.queues(), ["i"])) == ["i"]


def test_an_announcement_tells_the_name(make_store: MakeStore, ear: Ear) -> None:
    """A new head of such a queue is heard with the name under which it is found."""
    store = make_store(backup="hash")
    with store.listen() as listener:
        listener.wait(1.0)
        listener.follow([NAME, "q"])
        store.offer(NAME, waiting("i"))
        heard = [wake for wake in (listener.wait(1.0) for _ in range(3)) if wake is not None and wake.form is not None]
    assert (NAME, FUTURE_MS) in [(wake.form.queue, wake.due_ms) for wake in heard if wake.form]


@pytest.mark.parametrize("backup", ["list"], indirect=True)
def test_a_lost_connection_is_subscribed_again(store: DelayStore) -> None:
    """A listener that is to follow a queue with such a name outlives its connection, and hears of the others.

    An older Redis client raises its own error instead, after which a transfer worker listens anew.
    """
    with store.listen() as listener:
        listener.follow([NAME, "q"])
        for _ in range(2):
            listener.wait(1.0)
        store.client.client_kill_filter(_type="pubsub")
        try:
            again = [listener.wait(1.0) for _ in range(2)]
        except redis.ConnectionError:
            return
        assert any(wake is not None and wake.form is not None and wake.form.queue == "q" for wake in again)
