"""The store's operations on a queue that has messages in both layouts, and while they are moved."""

from collections.abc import Sequence
from threading import Thread
from typing import Any

import pytest

from kombu_delayq.options import LAYOUTS
from kombu_delayq.redis.replies import Command
from kombu_delayq.store import DelayStore
from kombu_delayq.store.client import StoreClient
from kombu_delayq.store.job_types import JobRun
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Offer, Waiting
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, contents, popped, waiting
from tests.support.store.layouts import other_form


@pytest.fixture
def source(make_store: MakeStore, layout: str) -> DelayStore:
    """A store in the layout that is not that of ``store``."""
    [other] = {*LAYOUTS} - {layout}
    return make_store(layout=other)


def pages(store: DelayStore, count: int) -> list[list[Waiting]]:
    """Reads the queue in pages."""
    read = [store.scan.browse("q", count=count)]
    while read[-1].more:
        read.append(store.scan.browse("q", read[-1], count=count))
    return [page.messages for page in read]


@pytest.mark.parametrize("count", [1, 3, 100])
def test_pages_are_of_both_forms_in_one_order(store: DelayStore, source: DelayStore, count: int) -> None:
    """Each message is read once, the next due first; of one due time those of the store's own layout come first."""
    for n in range(20):
        (store if n * 7 % 3 else source).delivery.offer("q", waiting(f"i{n:02}", FUTURE_MS + n // 4))
    read = pages(store, count)
    assert all(len(page) <= count for page in read)
    found = [each for page in read for each in page]
    assert sorted(each.id for each in found) == [f"i{n:02}" for n in range(20)]
    assert found == sorted(found, key=lambda each: (each.due_ms, each.layout != store.layout, each.id))


@pytest.mark.parametrize("to_own", [True, False])
def test_what_is_moved_between_two_pages_is_read_once(store: DelayStore, source: DelayStore, to_own: bool) -> None:
    """Whichever way they are moved meanwhile, none of the messages is left out, and none comes twice."""
    first, second = (source, store) if to_own else (store, source)
    for n in range(0, 300, 50):
        first.delivery.offer("q", *(waiting(f"i{n}", FUTURE_MS + n) for n in range(n, n + 50)))
    read, page = [], store.scan.browse("q", count=7)
    while True:
        read += [each.id for each in page.messages]
        second.queues.convert("q")
        if not page.more:
            break
        page = store.scan.browse("q", page, count=7)
    assert read == [f"i{n}" for n in range(300)]


def test_bounds_and_counts_are_of_both_forms(store: DelayStore, source: DelayStore) -> None:
    """Due times bound what is read and counted of either layout; the sum is told."""
    store.delivery.offer("q", waiting("a", PAST_MS), waiting("c", FUTURE_MS + 1))
    source.delivery.offer("q", waiting("b", FUTURE_MS), waiting("d", FUTURE_MS + 2))
    bounds = {"from_ms": FUTURE_MS, "to_ms": FUTURE_MS + 2}
    assert [each.id for each in store.scan.browse("q", **bounds).messages] == ["b", "c"]
    assert store.scan.count("q", **bounds) == 2
    assert (store.queues.size("q"), store.scan.count("q")) == (4, 4)
    stats = store.queues.stats("q")
    assert (stats.delayed, stats.overdue, stats.next_due_ms) == (4, 1, PAST_MS)
    assert sorted(store.delivery.heads(["q"]).due_ms.values()) == [PAST_MS, FUTURE_MS]


def test_messages_are_changed_in_the_form_in_which_they_are(store: DelayStore, source: DelayStore) -> None:
    """Messages of both layouts are rescheduled, sent and cancelled in one call, and stay in their form."""
    store.delivery.offer("q", *(waiting(f"own{n}") for n in range(3)))
    source.delivery.offer("q", *(waiting(f"other{n}") for n in range(3)))
    ids = [f"{of}{n}" for n in range(3) for of in ("own", "other")]
    found = {each: store.lookup.get(["q"], ids)[each][0] for each in ids}
    assert {each[:3]: message.layout for each, message in found.items()} == {
        "own": store.layout,
        "oth": source.layout,
    }
    changes = [Change(found[each], FUTURE_MS + 5, found[each].body or b"") for each in ids[:2]]
    assert store.lookup.reschedule("q", changes) == ["rescheduled"] * 2
    changes = [Change(found[each], 0, found[each].body or b"") for each in ids[2:4]]
    assert store.lookup.run_now("q", changes) == ["transferred"] * 2
    assert sorted(popped(store.client, "q")) == [b"body of other1", b"body of own1"]
    assert store.lookup.cancel(["q"], ids[4:]).keys() == {*ids[4:]}
    assert [(each.id, each.due_ms, each.layout) for each in store.scan.browse("q").messages] == [
        ("own0", FUTURE_MS + 5, store.layout),
        ("other0", FUTURE_MS + 5, source.layout),
    ]
    assert store.queues.purge("q") == 2
    assert contents(store.client) == {}


@pytest.mark.parametrize("to_own", [True, False])
def test_a_purge_leaves_nothing_of_what_is_moved_meanwhile(
    make_store: MakeStore,
    store: DelayStore,
    source: DelayStore,
    monkeypatch: pytest.MonkeyPatch,
    to_own: bool,
) -> None:
    """A conversion between the steps of a purge brings no message to safety."""
    first, second = (source, store) if to_own else (store, source)
    first.delivery.offer("q", *(waiting(f"i{n}") for n in range(50)))
    mover = make_store(layout=second.layout)
    run = StoreClient.run

    def run_and_convert(client: StoreClient, operation: str, *args: Any) -> object:
        done = run(client, operation, *args)
        if operation == "purge":
            mover.queues.convert("q")
        return done

    monkeypatch.setattr(StoreClient, "run", run_and_convert)
    assert store.queues.purge("q") == 50
    assert store.queues.size("q") == 0


def test_the_depth_of_a_queue_is_that_of_both_forms(store: DelayStore, source: DelayStore) -> None:
    """A bulk job that may fill a queue up to a depth counts what waits in either layout."""
    source.delivery.offer("q", *(waiting(f"i{n}") for n in range(5)))
    store.delivery.offer("q", waiting("j"))
    job = JobRun("j", store.jobs.new_run(), 600_000, max_depth=8)
    store.jobs.begin(job)
    assert store.jobs.enqueue("q", job, [waiting(f"k{n}") for n in range(3)]).word == "deep"
    assert store.jobs.enqueue("q", job, [waiting(f"k{n}") for n in range(2)]).word == "enqueued"
    staged = JobRun("s", store.jobs.new_run(), 600_000, staged=True, max_depth=9)
    store.jobs.begin(staged)
    store.jobs.enqueue("q", staged, [waiting(f"s{n}") for n in range(3)])
    store.jobs.finish(staged, "committed")
    assert store.jobs.publish(staged).fresh == 1
    assert store.jobs.publish(staged).word == "deep"


#: Enough that ids are looked for many times while their queue is converted.
IDS = [f"id{number}" for number in range(4000)]
DUE = "4102444800000"


@pytest.mark.parametrize("to_own", [True, False])
def test_every_message_is_found_by_its_id_while_its_queue_is_converted(
    make_store: MakeStore, layout: str, to_own: bool
) -> None:
    """Who looks for ids finds each of them, whichever of the forms they are moved to meanwhile."""
    other = {"hash": "redisson", "redisson": "hash"}[layout]
    first, second = (other, layout) if to_own else (layout, other)
    source, target, looking = make_store(layout=first), make_store(layout=second), make_store()
    for at in range(0, len(IDS), 200):
        source.delivery.offer(
            "q", *(Offer(each, DUE, 0, f'{{"headers": {{"id": "{each}"}}}}') for each in IDS[at : at + 200])
        )
    converting = Thread(target=_convert, args=(target,), daemon=True)
    converting.start()
    missing: set[str] = set()
    looked = 0
    while converting.is_alive() or not looked:
        for at in range(0, len(IDS), 50):
            missing.update(set(IDS[at : at + 50]) - looking.lookup.get(["q"], IDS[at : at + 50]).keys())
        looked += 1
    converting.join()
    assert missing == set()
    assert target.queues.purge("q") == len(IDS)


def _convert(target: DelayStore) -> None:
    while target.queues.convert("q").left:
        pass


@pytest.mark.parametrize("operation", ["get", "cancel"])
def test_a_message_is_found_that_is_moved_while_the_script_is_loaded(
    make_store: MakeStore, store: DelayStore, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """A conversion between the call that finds no script and the one that brings it hides no message."""
    store.delivery.offer("q", Offer("i", DUE, 0, "body"))
    target = make_store(layout=other_form(store))
    store.client.script_flush()
    replies, waits = StoreClient.replies, [target]

    def replies_then_convert(client: StoreClient, commands: Sequence[Command], *, once: bool = False) -> list[Any]:
        found = replies(client, commands, once=once)
        if waits:
            _convert(waits.pop())
        return found

    monkeypatch.setattr(StoreClient, "replies", replies_then_convert)
    assert getattr(store.lookup, operation)(["q"], ["i"]).keys() == {"i"}
