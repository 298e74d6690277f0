"""``search`` and ``page``: find waiting messages by a filter, over queues."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from celery_ext.waiting import DelayedTask, Done, Progress, Selection, Skipped, search, search_page, search_tasks
from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Offer
from tests.support.messages import changed_message
from tests.support.store.cost import calls
from tests.support.store.keyspace import BODIES, FUTURE_MS, ODD_IDS, in_form, odd, waiting


def task(identity: str, due_ms: float = FUTURE_MS, name: str = "shop.pay", **kwargs: Any) -> Offer:
    """Makes an offer of a task with keyword arguments."""
    message = changed_message(json.dumps([[], kwargs, {}]).encode(), headers={"id": identity, "task": name})
    return Offer(identity, repr(due_ms), 0, json.dumps(message))


def ids_of(events: Iterator[object]) -> list[str]:
    """Returns the ids of the messages that a search finds."""
    return [event.message.id for event in events if isinstance(event, DelayedTask)]


def paged(
    store: DelayStore, selection: Selection, limit: int, between: Callable[[list[DelayedTask]], object] = lambda _: None
) -> list[str]:
    """Returns queue and id of the messages on all pages, each with a cursor that came as text."""
    found, cursor = [], None
    for _ in count():
        part = search_page(store, selection, cursor, limit, for_s=600.0)
        assert len(part.tasks) <= limit
        found += [f"{task.queue} {task.message.id}" for task in part.tasks]
        between(part.tasks)
        cursor = part.cursor
        if cursor is None:
            return found
        assert len(part.tasks) == limit
        assert len(found) < 10_000
    raise AssertionError


@pytest.fixture
def filled(store: DelayStore) -> DelayStore:
    """A store with messages of three queues, many with equal due times, and some marked."""
    for n in range(120):
        store.delivery.offer(("a", "b", "c")[n % 3], waiting(f"{n:03}", FUTURE_MS + n // 20, priority=n % 2))
    return store


@pytest.mark.parametrize("limit", [1, 7, 10, 119, 120, 500])
def test_pages_of_any_size_hold_each_message_once(filled: DelayStore, limit: int) -> None:
    """Pages of any size have each message of all queues once, in one order, and end with no cursor."""
    found = paged(filled, Selection(), limit)
    dues = [event.message.due_ms for event in search_tasks(filled, Selection()) if isinstance(event, DelayedTask)]
    assert dues == sorted(dues)
    assert found == paged(filled, Selection(), 1000)
    assert len(set(found)) == len(found) == 120


@pytest.mark.parametrize("limit", [1, 7])
def test_what_leaves_between_pages_hides_no_other(filled: DelayStore, limit: int) -> None:
    """While all messages of each page leave before the next page is read, each message is on a page once."""
    expected = paged(filled, Selection(), 1000)

    def cancel(tasks: list[DelayedTask]) -> None:
        filled.lookup.cancel(["a", "b", "c"], [task.message.id for task in tasks])

    assert paged(filled, Selection(), limit, cancel) == expected


def test_a_page_may_end_at_any_id(store: DelayStore) -> None:
    """The next page begins right behind a message of any id, in a queue of any name."""
    queue = "ü \udcff{x}}"
    for identity in ODD_IDS:
        store.delivery.offer(queue, waiting("before", FUTURE_MS - 1), odd(identity), waiting("zz", FUTURE_MS + 1))
        assert paged(store, Selection(), 1) == [f"{queue} before", f"{queue} {identity}", f"{queue} zz"]
        store.queues.purge(queue)


def test_a_page_has_what_the_filter_selects(store: DelayStore) -> None:
    """Queues, range, task name and arguments narrow a page; the page says how many messages it has looked at."""
    for n in range(300):
        store.delivery.offer(
            f"q{n % 3}", task(f"{n:03}", FUTURE_MS + n, "shop.pay" if n % 2 else "mail.send", order={"id": n})
        )
    selection = Selection(queues=("q0", "q1"), from_ms=FUTURE_MS + 30, task="shop.*")
    expected = [f"q{n % 3} {n:03}" for n in range(30, 300) if n % 3 != 2 and n % 2]
    assert paged(store, selection, 10) == expected
    found = search_page(store, Selection(q="kwargs.order.id=217", to_ms=FUTURE_MS + 299), for_s=600.0)
    assert [task.id for task in found.tasks] == ["217"]
    assert (found.cursor, found.progress, found.skipped) == (None, Progress(299, 299), [])
    assert (
        search_page(store, Selection(queues=())).tasks == search_page(store, Selection(queues=("unknown",))).tasks == []
    )


def test_a_search_that_is_stopped_goes_on_where_it_ended(store: DelayStore) -> None:
    """A search ends when it is asked to, and its cursor finds the rest: nothing twice, and nothing left out."""
    store.delivery.offer("q", *(task(f"{n:04}", FUTURE_MS + n // 300) for n in range(1000)))
    found, cursor = list[str](), None
    for _ in range(100):
        begun = len(found)

        def stop(most: int = begun + 333) -> bool:
            return len(found) >= most

        for event in search_tasks(store, Selection(task="shop.pay"), cursor, stop=stop):
            if isinstance(event, DelayedTask):
                found.append(event.id)
            last = event
        assert isinstance(last, Done)
        cursor = last.cursor
        if cursor is None:
            break
        assert len(found) - begun == 333
    assert found == [f"{n:04}" for n in range(1000)]


def test_a_search_that_stops_at_once_has_a_cursor(store: DelayStore) -> None:
    """A search that looks at nothing says so, and its cursor begins at the beginning."""
    store.delivery.offer("q", task("i"))
    *_, progress, end = search_tasks(store, Selection(), stop=lambda: True)
    assert progress == Progress(0, 1)
    assert isinstance(end, Done)
    assert ids_of(search_tasks(store, Selection(), end.cursor)) == ["i"]


def test_a_search_is_bounded_in_time(store: DelayStore) -> None:
    """A search that finds little ends after its time, looks at one message at least, and can go on."""
    store.delivery.offer("q", *(task(f"{n:04}") for n in range(3)))
    cursor: str | None = None
    for looked in (1, 1, 1):
        found = search_page(store, Selection(task="other"), cursor, for_s=0.0)
        assert found.progress.looked == looked
        cursor = found.cursor
    assert cursor is None


def test_the_time_of_a_search_begins_with_its_first_message(store: DelayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many queues have to be asked first, a page looks at messages for its time, so that pages end."""
    for queue in range(20):
        store.delivery.offer(f"q{queue}", *(task(f"{queue}-{n:02}") for n in range(10)))
    browse, begun = store.scan.browse, search.monotonic()
    asked = 0

    def slowly(*args: Any, **kwargs: Any) -> Any:
        nonlocal asked
        asked += 1
        return browse(*args, **kwargs)

    monkeypatch.setattr(store.scan, "browse", slowly)
    monkeypatch.setattr(search, "monotonic", lambda: begun + asked)  # a second for each call of Redis
    found = search_page(store, Selection(task="other"), for_s=10.0)
    assert (found.progress.looked, found.cursor) == (200, None)


def test_a_search_reads_little_at_a_time(store: DelayStore) -> None:
    """The messages of one call are few, and fewer when they are large, so that no call keeps Redis busy for long."""
    store.delivery.offer("q", *(task(f"{n:03}", text="x" * 100_000) for n in range(40)))
    store.delivery.offer("p", *(task(f"{n:04}") for n in range(1000)))
    for queue, found in (("q", 40), ("p", 0)):
        store.client.config_resetstat()
        assert len(ids_of(search_tasks(store, Selection(queues=(queue,), q="x")))) == found
        assert calls(store)["evalsha"] >= 10


def test_a_queue_that_cannot_be_read_is_named(store: DelayStore) -> None:
    """Where somebody else's key is in the way of one queue, the others are searched and that one is named."""
    for queue in ("a", "q", "z"):
        store.delivery.offer(queue, waiting(f"in {queue}"))
    store.client.delete(in_form(store, BODIES))
    store.client.sadd(in_form(store, BODIES), "somebody else's")
    found = search_page(store, Selection(), for_s=600.0)
    assert [task.message.id for task in found.tasks] == ["in a", "in z"]
    [skipped] = found.skipped
    assert isinstance(skipped, Skipped)
    assert (skipped.queue, "WRONGTYPE" in skipped.error) == ("q", True)


def test_a_message_that_moves_forward_comes_again_and_the_search_ends(store: DelayStore) -> None:
    """A message that is rescheduled behind the place of a search may come twice; the others come once."""
    store.delivery.offer("q", *(waiting(f"{n:02}", FUTURE_MS + n) for n in range(30)))

    def postpone(tasks: list[DelayedTask]) -> None:
        if any(task.message.id == "03" for task in tasks):
            store.lookup.reschedule("q", [Change(tasks[-1].message, FUTURE_MS + 100, b"new")])

    found = paged(store, Selection(to_ms=FUTURE_MS + 101), 4, postpone)
    assert found == [f"q {n:02}" for n in range(30)] + ["q 03"]
