"""The store in memory, with which apps are tested, gives the same answers as the store on Redis.

What is left out of the store's tests has no meaning without a server: keys and their types, scripts and their cost, the
form of Redisson, expiry, lists of priorities, leases and consumers, repair, bulk jobs, ACL, outages.
"""

import inspect
import json
import time
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from celery_ext.testing.memory_store import MemoryStore
from celery_ext.waiting import by_id
from kombu_delayq.message.fields import CHAIN_ID
from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import Change, is_step
from kombu_delayq.store.types import Offer, PageId, Waiting
from kombu_delayq.text import as_text
from tests.store import test_search
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, Ear, announced, popped
from tests.support.store.tuned import tuned

QUEUES = ("q", "other", "third")
IDS = st.sampled_from(["a", "b", "a~", "ü", "i~0123456789abcdef"])
DUES_MS = st.sampled_from([PAST_MS, PAST_MS + 0.001, PAST_MS + 1, FUTURE_MS, FUTURE_MS + 0.5])
OFFERS = st.builds(
    lambda identity, due_ms, priority, body: Offer(identity, repr(due_ms), priority, body),
    IDS,
    DUES_MS,
    st.sampled_from([0, 0, 3, 9]),
    st.sampled_from(["x", "y", json.dumps({"headers": {"retries": 1}, CHAIN_ID: "the chain"})]),
)
QUEUE = st.sampled_from(QUEUES)
PLACE = st.integers(0, 1000)


def new_memory_store(pushed: list[Waiting]) -> MemoryStore:
    """Makes a store in memory, which pushes to a list."""
    return MemoryStore(tuned(transfer_batch=3), lambda: time.time() * 1000, pushed.append)


class CounterpartMachine(RuleBasedStateMachine):
    """Any operations on both stores: each gives the same answer, and the same messages wait."""

    redis: DelayStore
    ear: Ear

    @initialize()
    def begin(self) -> None:
        """Empties the server, and makes a new store in memory."""
        self.redis.client.flushall()
        self.ear.heard()
        self.heads: dict[str, float | None] = dict.fromkeys(QUEUES)
        self.pushed: list[Waiting] = []
        self.memory = new_memory_store(self.pushed)
        self.page = 0

    def both(self, call: Callable[[Any], Any]) -> Any:
        """Does the same with both stores, and compares the answers."""
        real, memory = call(self.redis), call(self.memory)
        assert memory == real
        return real

    @rule(queue=QUEUE, offers=st.lists(OFFERS, min_size=1, max_size=5))
    def offer(self, queue: str, offers: list[Offer]) -> None:
        """Messages come."""
        self.both(lambda store: store.delivery.offer(queue, *offers))

    @rule(queue=QUEUE, offers=st.lists(OFFERS, min_size=1, max_size=3), again=st.booleans())
    def put(self, queue: str, offers: list[Offer], again: bool) -> None:
        """A page of messages comes, maybe once more."""
        self.page += not again or not self.page
        page = PageId(f"sender to {queue}", self.page)
        self.both(lambda store: store.delivery.put(queue, page, [offers[0]._replace(due=""), *offers]))

    @rule(queue=QUEUE)
    def transfer(self, queue: str) -> None:
        """Messages that are due leave."""
        self.both(lambda store: _without_clock(store.delivery.transfer(queue)))

    @rule(queues=st.lists(QUEUE, unique=True), ids=st.lists(IDS, max_size=3))
    def get(self, queues: list[str], ids: list[str]) -> None:
        """Messages are looked up."""
        self.both(lambda store: _by_place(store.lookup.get(queues, ids)))

    @rule(ids=st.lists(IDS, max_size=3, unique=True))
    def cancel(self, ids: list[str]) -> None:
        """Tasks are cancelled, in all queues."""
        done = self.both(
            lambda store: [(one.id, sorted(one.messages), one.outcome) for one in by_id.cancel(store, ids)]
        )
        plain = [identity for identity, found, _ in done if found and not any(map(is_step, found))]
        for store in (self.redis, self.memory):  # Redis undoes an earlier refusal only where it takes a further call
            store.chains.accept(plain)

    @rule(queue=QUEUE, at=PLACE, due_ms=DUES_MS, old=st.booleans(), operation=st.sampled_from(["move", "push", "drop"]))
    def change(self, queue: str, at: int, due_ms: float, old: bool, operation: str) -> None:
        """A message is rescheduled, pushed or discarded as it was read, or as it was before."""
        waiting = [*by_id.browse(self.memory, queue), Waiting(queue, "unknown", FUTURE_MS, 0, b"x")]
        message = waiting[at % len(waiting)]
        message = message._replace(body=b"older") if old else message
        change = Change(message, due_ms, b"new" + (message.body or b""))
        calls: dict[str, Callable[[Any], Any]] = {
            "move": lambda store: store.lookup.reschedule(queue, [change]),
            "push": lambda store: store.lookup.run_now(queue, [change]),
            "drop": lambda store: store.lookup.discard(queue, [(message, message.id if at % 2 else "")]),
        }
        self.both(calls[operation])

    @rule(queue=QUEUE, identity=IDS, number=st.integers(0, 2))
    def step(self, queue: str, identity: str, number: int) -> None:
        """A step of a delay chain comes."""
        body = json.dumps({"headers": {"retries": number}, CHAIN_ID: "the chain"})
        self.both(lambda store: store.chains.step(queue, "the chain", Offer(identity, repr(FUTURE_MS), 0, body)))
        # The step before it has gone by then, so that the head may be announced again.
        assert set(self.ear.heard()) <= {announced(self.redis, FUTURE_MS, queue)}
        self.heads[queue] = self.head_ms(queue)

    @rule(ids=st.lists(IDS, max_size=2, unique=True))
    def cancel_chains(self, ids: list[str]) -> None:
        """Chains end."""
        self.both(lambda store: store.chains.cancel_chains(ids).chains)
        self.both(lambda store: store.chains.accept(ids[:1]))

    @rule(queue=QUEUE, count=st.integers(1, 4), bounds=st.lists(DUES_MS, max_size=2))
    def browse(self, queue: str, count: int, bounds: list[float]) -> None:
        """Pages are read until there is none."""
        from_ms, to_ms = (*bounds, -inf)[0], (*bounds, inf, inf)[1]
        found = [[*_pages(store, queue, from_ms, to_ms, count)] for store in (self.redis, self.memory)]
        assert found[0] == found[1]

    @rule(queue=QUEUE)
    def purge(self, queue: str) -> None:
        """A queue is emptied."""
        self.both(lambda store: store.queues.purge(queue))

    @invariant()
    def the_same_waits(self) -> None:
        """The same messages wait in the same order, and the same ones were pushed."""
        waiting = [queue for queue in QUEUES if self.memory.queues.size(queue)]
        for store in (self.redis, self.memory):  # a queue that is empty may be known for a while
            assert set(waiting) <= set(store.queues.names())
        for queue in QUEUES:
            self.both(lambda store, queue=queue: [*by_id.browse(store, queue)])
            self.both(lambda store, queue=queue: (store.queues.size(queue), store.scan.count(queue, FUTURE_MS)))
            for priority in (0, 3, 9):
                pushed = [one.body for one in self.pushed if (one.queue, one.priority) == (queue, priority)]
                assert popped(self.redis.client, f"{queue}\x06\x16{priority}" if priority else queue) == pushed
        self.pushed.clear()

    @invariant()
    def each_new_head_is_announced(self) -> None:
        """A head that is due before the one that was there is announced, and no other."""
        before, self.heads = self.heads, {queue: self.head_ms(queue) for queue in QUEUES}
        assert self.ear.heard() == [
            announced(self.redis, head_ms, queue)
            for queue, head_ms in self.heads.items()
            if head_ms is not None and ((old_ms := before[queue]) is None or head_ms < old_ms)
        ]

    def head_ms(self, queue: str) -> float | None:
        """Returns when the next message of a queue is due."""
        return next((message.due_ms for message in by_id.browse(self.memory, queue)), None)


def _pages(store: Any, queue: str, from_ms: float, to_ms: float, count: int) -> Iterator[list[Waiting]]:
    page = None
    while page is None or page.more:
        page = store.scan.browse(queue, page, from_ms, to_ms, count)
        yield page.messages


def _without_clock(done: Any) -> Any:
    return done._replace(lateness_ms=done.lateness_ms > 0, now_ms=0.0)


def _by_place(found: dict[str, list[Waiting]]) -> dict[str, list[Waiting]]:
    return {identity: sorted(messages) for identity, messages in found.items()}


@pytest.mark.plain_server
@pytest.mark.parametrize("layout", ["hash"])
def test_both_stores_give_the_same_answers(make_store: MakeStore, ear: Ear) -> None:
    """After any sequence of operations both stores have given the same answers, and keep the same messages."""
    CounterpartMachine.redis, CounterpartMachine.ear = make_store(transfer_batch=3), ear
    run_state_machine_as_test(
        CounterpartMachine,
        settings=settings(
            max_examples=80, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )


@pytest.mark.plain_server
@pytest.mark.parametrize("layout", ["hash"])
def test_a_copy_of_a_discarded_step_goes_with_it(make_store: MakeStore) -> None:
    """Both stores remove whatever is of the chain that ends, and leave what has its id by chance."""
    bodies = ["x", "y", json.dumps({"headers": {"retries": 1}, CHAIN_ID: "the chain"})]
    for store in (make_store(), new_memory_store([])):
        store.delivery.offer("q", *(Offer("a", repr(FUTURE_MS + at), 0, body) for at, body in enumerate(bodies)))
        first, *_ = by_id.browse(store, "q")
        assert store.lookup.discard("q", [(first, "a")]) == ["cancelled"]
        assert [as_text(found.body) for found in by_id.browse(store, "q")] == ["y"]


@pytest.mark.plain_server
@pytest.mark.parametrize("numbers", [(1, 2), (2, 1)])
def test_a_step_that_waits_leaves_no_earlier_one_beside_it(make_store: MakeStore, numbers: tuple[int, int]) -> None:
    """In both stores a step that comes again removes an earlier one of its chain, whichever of them came first."""
    bodies = [json.dumps({"headers": {"retries": number}, CHAIN_ID: "the chain"}) for number in (*numbers, 2)]
    for store in (make_store(), new_memory_store([])):
        *offers, again = [Offer("a", repr(FUTURE_MS - at), 0, body) for at, body in enumerate(bodies)]
        store.delivery.offer("q", *offers)
        assert store.chains.step("q", "the chain", again) == "waits"
        assert [as_text(found.body) for found in by_id.browse(store, "q")] == [again.body]


def test_the_counterpart_takes_the_same_arguments(make_store: MakeStore) -> None:
    """Each operation of the store in memory has the arguments of the operation on Redis."""
    real, memory = make_store(), new_memory_store([])
    compared = 0
    parts = [(name, part) for name, part in vars(memory).items() if not name.startswith("_")]
    for part, own in parts:
        for name, method in inspect.getmembers(own, inspect.ismethod):
            if not name.startswith("_"):
                expected = inspect.signature(getattr(getattr(real, part), name)).parameters
                given = inspect.signature(method).parameters
                assert _defaults(given) == _defaults(expected), (part, name)
                compared += 1
    assert compared > 20


def _defaults(parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    return {name: (parameter.default, parameter.kind) for name, parameter in parameters.items()}


class TestSearch:
    """Searches find the same in the store in memory."""

    @pytest.fixture
    def store(self) -> MemoryStore:
        """A store in memory."""
        return new_memory_store([])

    test_ids = staticmethod(test_search.test_a_page_may_end_at_any_id)
    test_filters = staticmethod(test_search.test_a_page_has_what_the_filter_selects)
    test_stops = staticmethod(test_search.test_a_search_that_is_stopped_goes_on_where_it_ended)
    test_stop_at_once = staticmethod(test_search.test_a_search_that_stops_at_once_has_a_cursor)
    test_time = staticmethod(test_search.test_a_search_is_bounded_in_time)
    test_moves = staticmethod(test_search.test_a_message_that_moves_forward_comes_again_and_the_search_ends)
