"""Messages of both tiers are one backlog: pages, counts, and actions on what a filter matches."""

from collections.abc import Iterator

import pytest

from celery_ext.journal import JournaledStore
from celery_ext.waiting import Selection, bulk, by_id, search
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import DelayedQueue, Page, Part, Waiting
from tests.support.journal.stores import DAY_MS, HOUR_MS, MakeJournaled, Promoter, addition, offer
from tests.support.store.keyspace import clock_ms

pytestmark = pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)


def spread(store: JournaledStore, count: int = 30) -> list[str]:
    """Puts messages into both places, a few of each due time. Returns their ids in the order of due times."""
    now_ms = clock_ms(store.client)
    names = [f"i{n:02}" for n in range(count)]
    for n, name in enumerate(names):
        due_ms = now_ms + HOUR_MS / 4 + n // 6
        if n % 2:
            store.journal.add([addition(name, due_ms)])
        else:
            store.redis_alone.delivery.offer("q", offer(name, due_ms))
    return names


def pages(store: JournaledStore, count: int) -> Iterator[Page]:
    page = store.scan.browse("q", None, count=count)
    yield page
    while page.more:
        page = store.scan.browse("q", page, count=count)
        yield page


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("promoted_after", [0, 3])
def test_a_message_is_shown_once(make_journaled: MakeJournaled, count: int, promoted_after: int | None) -> None:
    """Pages over both tiers are in due order, and have each message once, also if it is promoted in between."""
    store = make_journaled()
    names, found = spread(store), list[Waiting]()
    promoter = Promoter(store).heartbeat()
    for number, page in enumerate(pages(store, count)):
        found += page.messages
        if number == promoted_after:
            promoter.promote()
    assert sorted(one.id for one in found) == names
    assert [one.due_ms for one in found] == sorted(one.due_ms for one in found)


def test_a_message_that_is_pushed_and_not_marked_is_shown_once(make_journaled: MakeJournaled) -> None:
    """Between push and mark a message is in both tiers; it is found and shown once."""
    store = make_journaled()
    names = spread(store)
    Promoter(store).heartbeat()
    rows = store.journal.promotable(clock_ms(store.client) + HOUR_MS, 100)
    for row in rows:
        store.redis_alone.delivery.offer("q", offer(row.id, row.due_ms))
    for count in (1, 2, 4, 100):
        found = [one.id for page in pages(store, count) for one in page.messages]
        assert sorted(found) == names
    assert {len(messages) for messages in store.lookup.get(["q"], names).values()} == {1}


def test_a_cursor_goes_on_in_the_other_tier(make_journaled: MakeJournaled) -> None:
    """Searches that begin at the cursor of the one before find each message once, in both tiers."""
    store, cursor, found = make_journaled(), None, list[str]()
    names = spread(store)
    for _ in range(len(names) + 1):
        page = search.search_page(store, Selection(), cursor, limit=1)
        found += [task.message.id for task in page.tasks]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(found) == names


def test_counts_span_both_tiers(make_journaled: MakeJournaled) -> None:
    """Counts, figures and names have the messages of both places, and sizes by layout say which has them."""
    store = make_journaled()
    spread(store)
    store.journal.add([addition("alone", clock_ms(store.client) + 40 * DAY_MS)._replace(queue="far")])
    assert store.queues.names() == ["far", "q"]
    assert store.queues.registered() == ["q"]
    assert store.queues.exists("far")
    sizes = store.scan.sizes(["far", "q"])
    assert [sizes[DelayedQueue("q", delayed)] for delayed in ("hash", "journal")] == [15, 15]
    assert (store.scan.count("q"), store.queues.size("q"), store.scan.count("far")) == (30, 30, 1)
    far, own = store.figures.overview(["far", "q"])
    assert (far.delayed, own.delayed, own.overdue) == (1, 30, 0)
    assert far.next_due_ms == store.journal.next_due("far")
    assert store.queues.stats("q").delayed == 30
    assert store.figures.due_counts(["far", "q"], [0, 1e15]) == {"far": [1], "q": [30]}


def test_parts_of_the_journal(make_journaled: MakeJournaled) -> None:
    """The rows of a queue are cut, scanned and read as those of the default layout are."""
    store = make_journaled()
    names = [name for name in spread(store) if int(name[1:]) % 2]
    parts = store.scan.split("q", [3, 8], layout="journal")
    assert [part.layout for part in parts] == ["journal"] * len(parts)
    found = []
    for part in parts:
        page = store.scan.scan(part, count=2)
        found += store.scan.ids(part, page.members) if page.members else []
        while page.more:
            page = store.scan.scan(part, page, count=2)
            found += store.scan.ids(part, page.members) if page.members else []
    assert [name.decode() for name in found] == names
    page = store.scan.scan(Part("q", layout="journal"))
    bodies = store.scan.bodies(Part("q", layout="journal"), page.members)
    assert list(map(len, [body or b"" for body in bodies])) == page.lengths
    store.lookup.cancel(["q"], names[:1])
    assert store.scan.bodies(Part("q", layout="journal"), page.members)[0] is None


@pytest.mark.parametrize("in_redis", [True, False])
@pytest.mark.parametrize("action", ["cancel", "reschedule", "run_now"])
def test_an_action_reaches_all_messages_of_one_id(
    make_journaled: MakeJournaled, in_redis: bool, action: bulk.ActionName
) -> None:
    """Of two tasks with one custom id, in one tier or in both, none is left out."""
    store = make_journaled()
    due_ms = clock_ms(store.client) + 40 * DAY_MS
    if in_redis:
        store.redis_alone.delivery.offer("q", offer("i", due_ms))
    else:
        store.journal.add([addition("i", due_ms)])
    store.journal.add([addition("another body", due_ms + 1)._replace(id="i"), addition("other", due_ms)])
    taken = bulk.take_snapshot(store, Selection(queues=("q",)))
    assert taken is not None
    work = bulk.Bulk(taken, bulk.BulkAction(action, due_ms + HOUR_MS if action == "reschedule" else None))
    assert work.run(store)
    assert (work.of, work.outcomes.total(), work.outcomes["gone"]) == (3, 3, 0)
    left = [*by_id.browse(store, "q")]
    assert [one.due_ms for one in left if one.due_ms > clock_ms(store.client)] == (
        [due_ms + HOUR_MS] * 3 if action == "reschedule" else []
    )


def test_a_purge_empties_both_tiers(make_journaled: MakeJournaled) -> None:
    """A purge removes the messages of both places, and rows of messages that Redis has; it counts each message once."""
    store = make_journaled(journal="all")
    names = spread(store)
    Promoter(store).heartbeat().promote()
    store.delivery.offer("q", offer("more", clock_ms(store.client) + 40 * DAY_MS))
    assert store.queues.purge("q") == len(names) + 1
    assert store.journal.sizes() == {}
    assert store.queues.size("q") == 0


def test_a_row_follows_its_message(make_journaled: MakeJournaled) -> None:
    """The row of a message in Redis gets its new due time and body; it stays there, however late it is due."""
    store = make_journaled(journal="all")
    now_ms = clock_ms(store.client)
    store.delivery.offer("q", offer("i", now_ms + HOUR_MS))
    for hours in (2, 1, 1000):
        [message] = store.lookup.get(["q"], ["i"])["i"]
        due_ms = now_ms + hours * HOUR_MS
        Promoter(store).heartbeat()
        assert store.lookup.reschedule("q", [Change(message, due_ms, b"%d" % hours)]) == ["rescheduled"]
        [row] = store.journal.get(["i"], None)
        assert (row.due_ms, row.body, row.state == 0) == (due_ms, b"%d" % hours, False)
        [message] = store.lookup.get(["q"], ["i"])["i"]
        assert (message.due_ms, message.layout) == (due_ms, "hash")
    assert store.lookup.discard("q", [(message, "")]) == ["cancelled"]
    assert store.journal.get(["i"], None) == []


def test_what_redis_lost_is_cancelled_in_the_journal(make_journaled: MakeJournaled) -> None:
    """A message that is lost with Redis's data can be cancelled, and is never restored then."""
    store = make_journaled(journal="all")
    Promoter(store).heartbeat()
    store.delivery.offer("q", offer("i", clock_ms(store.client) + HOUR_MS))
    store.client.flushall()
    assert [*store.lookup.cancel(["q"], ["i"])] == ["i"]
    assert store.journal.get(["i"], None) == []
    assert store.lookup.cancel(["q"], ["i"]) == {}


def test_without_a_promoter_a_message_waits_in_the_journal(make_journaled: MakeJournaled) -> None:
    """Where no promoter ever was, what is to run now is due now in the journal, and the first promoter promotes it."""
    store = make_journaled()
    store.journal.add([addition("i", clock_ms(store.client) + 40 * DAY_MS)])
    [message] = store.lookup.get(["q"], ["i"])["i"]
    assert store.lookup.run_now("q", [Change(message, 0.0, b"now")]) == ["rescheduled"]
    Promoter(store).heartbeat().promote()
    assert store.delivery.transfer("q").moved == 1
