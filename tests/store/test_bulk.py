"""``Bulk``: acts on the messages that a filter matched at a moment, and on no others."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from celery_ext.waiting import Bulk, BulkAction, Progress, Selection, Snapshot, by_id, take_snapshot
from kombu_delayq.errors import AnswerLost, DelayTooLong
from kombu_delayq.message.fields import CHAIN_ID
from kombu_delayq.store import DelayStore
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Offer, Waiting
from tests.support.messages import changed_message
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import BODIES, FUTURE_MS, PAST_MS, contents, in_form, look, lose_body, popped, waiting

HOUR_MS = 3_600_000
CANCEL, RUN = BulkAction("cancel"), BulkAction("run_now")
LATER = BulkAction("reschedule", shift_s=3600)
TO = BulkAction("reschedule", due_ms=FUTURE_MS + 500)


def task(identity: str, due_ms: float = FUTURE_MS, name: str = "shop.pay", **kwargs: Any) -> Offer:
    """Makes an offer of a task with an eta."""
    head = {"id": identity, "task": name, "eta": "2100-01-01T00:00:00+00:00"}
    return Offer(
        identity, repr(due_ms), 0, json.dumps(changed_message(json.dumps([[], kwargs, {}]).encode(), headers=head))
    )


def taken(store: DelayStore, selection: Selection | None = None) -> Snapshot:
    """Takes a snapshot."""
    snapshot = take_snapshot(store, selection or Selection())
    assert snapshot is not None
    return snapshot


def dues(store: DelayStore, queue: str = "q") -> dict[str, float]:
    """Returns when the messages of a queue are due, after FUTURE_MS."""
    return {message.id: message.due_ms - FUTURE_MS for message in by_id.browse(store, queue)}


def once(act: Callable[[], object]) -> Callable[[], bool]:
    """Returns a ``stop`` that never stops, and does something when it is asked for the first time."""
    left = [act]

    def stop() -> bool:
        if left:
            left.pop()()
        return False

    return stop


@pytest.mark.parametrize(
    ("action", "outcome", "left"),
    [
        (CANCEL, "cancelled", {}),
        (RUN, "transferred", {}),
        (LATER, "rescheduled", {f"{n:03}": n // 7 + HOUR_MS for n in range(250)}),
        (TO, "rescheduled", {f"{n:03}": 500 for n in range(250)}),
    ],
)
def test_every_message_of_the_snapshot_gets_it(
    store: DelayStore, action: BulkAction, outcome: str, left: dict[str, float]
) -> None:
    """Each message of the filter is acted on once, in all queues; others stay, and each outcome is counted."""
    for queue in ("q", "p"):
        store.delivery.offer(queue, *(task(f"{n:03}", FUTURE_MS + n // 7) for n in range(250)))
    store.delivery.offer("q", task("early", FUTURE_MS - 1), task("late", FUTURE_MS + 36))
    selection = Selection(from_ms=FUTURE_MS, to_ms=FUTURE_MS + 36)
    told: list[tuple[int, int]] = []
    bulk = Bulk(taken(store, selection), action)
    assert bulk.run(store, progress=lambda *done: told.append(done))
    assert bulk.outcomes == {outcome: 500}
    assert {of for _, of in told} == {500}
    steps = [after - before for before, after in pairwise([0, *(done for done, _ in told)])]
    assert 0 < max(steps) <= LAYOUT_OF[store.layout].changes_a_call
    assert sum(steps) == 500
    assert dues(store) == {"early": -1, **left, "late": 36}
    assert dues(store, "p") == left
    assert store.client.llen("p") == (250 if action is RUN else 0)


@pytest.mark.parametrize("selection", [Selection(), Selection(task="shop.*")], ids=["all", "by task"])
@pytest.mark.parametrize("action", [CANCEL, RUN, LATER])
def test_what_changes_meanwhile_is_left_alone(store: DelayStore, selection: Selection, action: BulkAction) -> None:
    """Messages that come, leave, or move out of the filter after the snapshot stay as they are; the rest is counted."""
    store.delivery.offer("q", *(task(str(n), FUTURE_MS + n) for n in range(10)), task("0x", PAST_MS))
    selection = Selection(to_ms=FUTURE_MS + 10, task=selection.task)
    bulk = Bulk(taken(store, selection), action)

    def change() -> None:
        found = {message.id: message for message in by_id.browse(store, "q")}
        store.delivery.offer("q", task("came", FUTURE_MS + 5))
        store.delivery.offer("came", task("3", FUTURE_MS + 5))
        store.lookup.cancel(["q"], ["2"])
        store.delivery.transfer("q")
        moved = json.dumps(json.loads(found["4"].body or b"") | {"moved": 1}).encode()
        store.lookup.reschedule("q", [Change(found["4"], FUTURE_MS + 10, moved)])

    assert bulk.run(store, stop=once(change))
    word = {"cancel": "cancelled", "run_now": "transferred", "reschedule": "rescheduled"}[action.name]
    assert bulk.outcomes == {word: 8, "gone": 3}
    left = dues(store)
    assert (left.pop("came"), left.pop("4")) == (5, 10)
    assert left == ({str(n): n + HOUR_MS for n in (0, 1, 3, 5, 6, 7, 8, 9)} if action is LATER else {})
    assert dues(store, "came") == {"3": 5}


@pytest.mark.parametrize("action", [CANCEL, RUN, LATER])
def test_a_message_that_moves_within_the_range_is_still_meant(store: DelayStore, action: BulkAction) -> None:
    """A message of the snapshot that is rescheduled within the range meanwhile is acted on, once, wherever it goes."""
    store.delivery.offer("q", *(task(f"{n:03}", FUTURE_MS + n) for n in range(700)))
    bulk = Bulk(taken(store, Selection(to_ms=FUTURE_MS + 2 * HOUR_MS)), action)

    def stop() -> bool:
        for done, name, due_ms in (
            (0, "010", FUTURE_MS + 699.5),
            (LAYOUT_OF[store.layout].changes_a_call, "650", FUTURE_MS - 5),
        ):
            if bulk.done == done:
                [message] = store.lookup.get(["q"], [name])[name]
                assert store.lookup.reschedule("q", [Change(message, due_ms, message.body or b"")]) == ["rescheduled"]
        return False

    assert bulk.run(store, stop=stop)
    word = {"cancel": "cancelled", "run_now": "transferred", "reschedule": "rescheduled"}[action.name]
    assert bulk.outcomes == {word: 700}
    assert len(dues(store)) == (700 if action is LATER else 0)
    assert not dues(store) or min(dues(store).values()) == HOUR_MS - 5


@pytest.mark.parametrize("action", [CANCEL, RUN, LATER, TO])
def test_it_stops_and_goes_on(store: DelayStore, action: BulkAction) -> None:
    """Stopped midway, it says so and has counted what it did; run again, it does the rest, and nothing twice."""
    store.delivery.offer("q", *(task(f"{n:03}", FUTURE_MS + n / 10) for n in range(450)))
    bulk = Bulk(taken(store), action)
    stops = 0
    while not bulk.run(store, stop=lambda before=bulk.done: bulk.done > before):  # type: ignore[misc]
        stops += 1
        assert bulk.done == LAYOUT_OF[store.layout].changes_a_call * stops
    assert stops == 449 // LAYOUT_OF[store.layout].changes_a_call
    assert (bulk.done, bulk.of) == (450, 450)
    assert set(dues(store).values()) <= {500, *(store_kept(store, n / 10) + HOUR_MS for n in range(450))}
    assert len(dues(store)) == (0 if action in (CANCEL, RUN) else 450)
    assert bulk.run(store)
    assert bulk.done == 450


def store_kept(store: DelayStore, ms: float) -> float:
    """Returns the ms after FUTURE_MS that the store keeps of a due time."""
    return float(-(-ms // 1)) if store.layout == "redisson" else (FUTURE_MS + ms) - FUTURE_MS


@pytest.mark.parametrize("action", [CANCEL, RUN, LATER, TO])
def test_an_answer_that_is_lost_makes_nothing_happen_twice(
    store: DelayStore, action: BulkAction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a call whose answer was lost, the rest is done; no message runs or moves twice, and the sum is right."""
    store.delivery.offer("q", *(task(f"{n:03}", FUTURE_MS + n) for n in range(150)))
    bulk = Bulk(taken(store), action)
    name = {"cancel": "discard", "run_now": "run_now", "reschedule": "reschedule"}[action.name]
    act = getattr(store.lookup, name)

    def lost(*args: Any) -> list[str]:
        monkeypatch.setattr(store.lookup, name, act)
        act(*args)
        raise RedisConnectionError("lost")

    monkeypatch.setattr(store.lookup, name, lost)
    with pytest.raises((AnswerLost, RedisConnectionError)):
        bulk.run(store)
    assert bulk.done == 0
    assert bulk.run(store)
    if action in (CANCEL, RUN):
        assert bulk.outcomes["gone"] == LAYOUT_OF[store.layout].changes_a_call
        assert dues(store) == {}
        assert store.client.llen("q") == (150 if action is RUN else 0)
    else:
        assert bulk.outcomes == {"rescheduled": 150}
        assert set(dues(store).values()) == ({500} if action is TO else {n + HOUR_MS for n in range(150)})


def test_a_filter_by_arguments_is_applied_again(store: DelayStore) -> None:
    """A message whose arguments no longer match stays, though it was in the snapshot."""
    store.delivery.offer("q", *(task(f"{n}", FUTURE_MS + n, order={"id": n % 2}) for n in range(6)))
    snapshot = taken(store, Selection(q="kwargs.order.id=1"))
    assert len(snapshot) == 3
    message = store.lookup.get(["q"], ["1"])["1"][0]
    store.lookup.cancel(["q"], ["1"])
    store.delivery.offer("q", task("1", message.due_ms, order={"id": 0}))
    bulk = Bulk(snapshot, CANCEL)
    assert bulk.run(store)
    assert bulk.outcomes == {"cancelled": 2, "gone": 1}
    assert dues(store) == {"0": 0, "1": 1, "2": 2, "4": 4}


@pytest.mark.parametrize("method", ["sizes", "scan"])
def test_messages_that_cannot_be_read_are_not_gone(
    store: DelayStore, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """What a user may no longer read is an error, the other queues are done with, and the rest is when it is read."""
    store.delivery.offer("q", *(task(f"{n}") for n in range(3)))
    store.delivery.offer("other", *(task(f"other {n}") for n in range(2)))
    bulk = Bulk(taken(store), CANCEL)
    read = getattr(store.scan, method)

    def refused(of: Any, *args: Any) -> Any:
        """Reads all queues but one."""
        if "q" in (of if method == "sizes" else [of.queue]):
            raise ResponseError("The user executing the script can't run this command or subcommand")
        return read(of, *args)

    with monkeypatch.context() as patched:
        patched.setattr(store.scan, method, refused)
        with pytest.raises(ResponseError, match=r"queue 'q': The user executing the script can't"):
            bulk.run(store)
    assert bulk.outcomes == {"cancelled": 2}
    assert store.queues.size("q") == 3
    assert bulk.run(store)
    assert bulk.outcomes == {"cancelled": 5}


@pytest.mark.parametrize("action", [CANCEL, LATER, TO])
def test_an_action_reaches_all_messages_of_one_id(store: DelayStore, action: BulkAction) -> None:
    """Of tasks with one custom id, all that match have an outcome, and those that do not match stay."""
    offers = [task("i", FUTURE_MS + 1, n=1), task("i", FUTURE_MS + 2, n=2), task("i", FUTURE_MS + 3, "mail.send")]
    store.delivery.offer("q", *offers)
    bulk = Bulk(taken(store, Selection(task="shop.*")), action)
    assert bulk.run(store)
    assert (bulk.of, bulk.outcomes) == (2, {"cancelled" if action is CANCEL else "rescheduled": 2})
    left = sorted(message.due_ms - FUTURE_MS for message in by_id.browse(store, "q"))
    moved = {CANCEL: [], LATER: [1 + HOUR_MS, 2 + HOUR_MS], TO: [500, 500]}[action]
    assert left == [3, *moved]


def test_a_cancelled_step_ends_its_chain(store: DelayStore) -> None:
    """The delay chain of a step that is cancelled takes no further step, as after a cancel by id."""
    body = task("step").body
    step = Offer("step", repr(FUTURE_MS), 0, f'{str(body)[:-1]}, "{CHAIN_ID}": "c"}}')
    assert store.chains.step("q", '"c"', step) == "first"
    announced: list[Waiting] = []
    bulk = Bulk(taken(store), CANCEL)
    assert bulk.run(store, announce=announced.extend)
    assert [message.id for message in announced] == ["step"]
    assert store.chains.step("q", '"c"', step) == "cancelled"


def test_what_cannot_be_changed_is_counted(make_store: MakeStore) -> None:
    """A message that has no readable eta, has lost its body, or would wait for too long stays and is counted."""
    store = make_store(max_delay=10 * 365 * 86400 * 10)
    store.delivery.offer("q", waiting("no JSON", FUTURE_MS + 1), task("good", FUTURE_MS + 2), waiting("lost"))
    lose_body(store, "lost")
    before = contents(store.client)
    with pytest.raises(DelayTooLong):
        Bulk(taken(store), BulkAction("reschedule", shift_s=10 * 365 * 86400 * 10)).run(store)
    assert contents(store.client) == before
    snapshot = taken(store)
    bulk = Bulk(snapshot, BulkAction("reschedule", shift_s=1))
    assert bulk.run(store)
    assert bulk.outcomes == {"rescheduled": 1, "unreadable": 1, "gone": 1}


def test_a_past_time_runs_messages(store: DelayStore) -> None:
    """Messages that are shifted to a past time go to their queue."""
    store.delivery.offer("q", task("a"), task("b", FUTURE_MS + 1000))
    bulk = Bulk(taken(store), BulkAction("reschedule", shift_s=(PAST_MS - FUTURE_MS) / 1000))
    assert bulk.run(store)
    assert bulk.outcomes == {"transferred": 2}
    assert [json.loads(body)["headers"]["id"] for body in popped(store.client, "q")] == ["a", "b"]


def test_a_queue_that_cannot_be_read_is_named(store: DelayStore) -> None:
    """Where somebody else's key is in the way of one queue, the others are acted on and that one is named."""
    for queue in ("a", "q", "z"):
        store.delivery.offer(queue, waiting(f"in {queue}"))
    store.client.delete(in_form(store, BODIES))
    store.client.sadd(in_form(store, BODIES), "somebody else's")
    for selection in (Selection(), Selection(priority=0)):
        snapshot = taken(store, selection)
        assert (len(snapshot), [skipped.queue for skipped in snapshot.skipped]) == (2, ["q"])
    bulk = Bulk(snapshot, CANCEL)
    assert bulk.run(store)
    assert bulk.outcomes == {"cancelled": 2}


@pytest.mark.parametrize("selection", [Selection(), Selection(priority=0)], ids=["all", "by priority"])
def test_a_snapshot_changes_nothing_and_can_be_given_up(store: DelayStore, selection: Selection) -> None:
    """Counting tells its progress and changes no key; it can be stopped."""
    store.delivery.offer("q", *(waiting(f"{n:04}", FUTURE_MS + n) for n in range(1200)))
    before, told = look(store), list[Progress]()
    snapshot = take_snapshot(store, selection, progress=told.append)
    assert snapshot is not None
    assert (len(snapshot), snapshot.left, snapshot.latest_ms) == (1200, 1200, FUTURE_MS + 1199)
    assert told[-1] == Progress(1200, 1200)
    assert abs(snapshot.as_of_ms - store.now_ms()) < 60_000
    assert take_snapshot(store, selection, stop=lambda: True) is None
    assert look(store) == before


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (("drop",), "'drop' is no action"),
        (("reschedule",), "either a new time or a shift"),
        (("reschedule", 1.0, 1.0), "either a new time or a shift"),
        (("cancel", 1.0), "cancel takes no time"),
        (("run_now", None, 1.0), "run_now takes no time"),
        (("reschedule", float("nan")), "nan is no time"),
        (("reschedule", None, "1h"), "'1h' is no time"),
    ],
)
def test_a_wrong_action_is_named(given: tuple[Any, ...], complaint: str) -> None:
    """An action without its time, with one that it does not take, or of another name raises a ValueError."""
    with pytest.raises(ValueError, match=complaint):
        BulkAction(*given)


def test_few_of_many_are_changed_in_few_calls(store: DelayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of several pages are read and changed together."""
    count = 3 * LAYOUT_OF[store.layout].read_a_call
    names = ["shop.few" if n % 100 == 0 else "shop.many" for n in range(count)]
    offers = [task(f"{n:04}", FUTURE_MS + n, name) for n, name in enumerate(names)]
    for start in range(0, count, 100):
        store.delivery.offer("q", *offers[start : start + 100])
    snapshot = take_snapshot(store, Selection(task="shop.few"))
    assert snapshot is not None
    calls: list[int] = []
    discard = store.lookup.discard

    def counted(queue: str, messages: Any) -> list[str]:
        calls.append(len(messages))
        return discard(queue, messages)

    monkeypatch.setattr(store.lookup, "discard", counted)
    bulk = Bulk(snapshot, BulkAction("cancel"))
    assert bulk.run(store)
    assert bulk.outcomes == {"cancelled": count // 100 + (count % 100 > 0)}
    assert calls == [bulk.done]
    assert store.queues.size("q") == count - bulk.done
