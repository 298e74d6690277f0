"""Redisson's layout against a model in Python: no message lost, none doubled, order kept, each head announced.

The default layout has the shipped store in memory as its model: ``test_memory.py``.
"""

import json
from collections.abc import Iterable
from math import inf

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from kombu_delayq.message.fields import CHAIN_ID
from kombu_delayq.store import DelayStore
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Offer, Waiting
from tests.support.store.consuming import INDEX, UNACKED
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import (
    DUE,
    FUTURE_MS,
    PAST_MS,
    Ear,
    announced,
    in_form,
)
from tests.support.store.layouts import redisson_only
from tests.support.store.model import Head, Model
from tests.support.store.redisson_layout import is_sound

#: Few of each, so that ids and due times meet often.
IDS = st.sampled_from(["a", "b", "a~", "ü", ""])
DUES_MS = st.sampled_from([PAST_MS, PAST_MS + 0.001, PAST_MS + 1, FUTURE_MS, FUTURE_MS + 0.5])
TEXTS = st.sampled_from(["", "x", "y", "z"])
PRIORITIES = st.sampled_from([0, 0, 0, 1, 3, 9])
MESSAGES = st.tuples(IDS, DUES_MS, PRIORITIES, TEXTS)
#: More than there are; counted round the waiting messages and one that does not wait.
PLACES = st.integers(0, 1000)
#: One of the waiting messages by its place; by its own id, or by that under which it is stored.
PICKS = st.tuples(PLACES, st.booleans())
#: A message likewise, what its body was more than it is, and its new due time and body.
CHANGES = st.tuples(PLACES, st.sampled_from(["", "", "", "old"]), DUES_MS, TEXTS)


Told = tuple[str, float, int, bytes | None]


pytestmark = redisson_only


def told(messages: Iterable[Waiting]) -> list[Told]:
    return [tuple(message)[1:5] for message in messages]


def _read(change: Change) -> tuple[float, bytes | None]:
    """Returns due time and body of a message as they were read before a change."""
    return change.message.due_ms, change.message.body


class StoreMachine(RuleBasedStateMachine):
    """All that changes what waits, in any order, and all that reads it in between."""

    store: DelayStore
    ear: Ear

    @initialize()
    def begin(self) -> None:
        """Empties the server and the model."""
        self.client = self.store.client
        self.client.flushall()
        self.ear.heard()
        self.model = Model()

    @rule(messages=st.lists(MESSAGES, min_size=1, max_size=6))
    def offer(self, messages: list[tuple[str, float, int, str]]) -> None:
        """A call of ``offer`` with one or more messages."""
        before = self.model.head()
        states = [self.model.put(*message) for message in messages]
        reply = self.store.delivery.offer(
            "q", *(Offer(i, repr(due), priority, body) for i, due, priority, body in messages)
        )
        assert reply[1:] == tuple(states.count(state) for state in ("offered", "repeated", "renamed"))
        head = self.check_announced(before)
        assert reply.place == ("first" if before.due_ms is None else "head" if head else "behind")

    @rule(message=MESSAGES)
    def adopt(self, message: tuple[str, float, int, str]) -> None:
        """A call of ``adopt`` for a message that a consumer holds."""
        identity, due_ms, priority, body = message
        self.client.zadd(INDEX, {"tag": 1})
        self.client.hset(UNACKED, "tag", body)
        before = self.model.head()
        adopted = self.store.delivery.adopt("q", Offer(identity, repr(due_ms), priority, body), "tag") != "due"
        assert adopted == (due_ms >= FUTURE_MS)
        assert self.client.exists(INDEX, UNACKED) == (0 if adopted else 2)
        self.client.delete(INDEX, UNACKED)
        if adopted:
            self.model.put(*message)
        self.check_announced(before)

    @rule()
    def transfer(self) -> None:
        """A call of ``transfer``, which moves at most a batch."""
        due = [each for each in self.model.in_order() if each.due_ms < FUTURE_MS]
        done = self.store.delivery.transfer("q")
        moved, rest = due[:3], due[3:]
        assert (done.moved, done.lateness_ms) == (len(moved), done.now_ms - moved[0].due_ms if moved else 0)
        assert done.more == bool(rest)
        for each in moved:
            self.model.push(each, each.body)
        assert done.next_due_ms == self.model.head_ms()

    @rule(picks=st.lists(PICKS, max_size=3))
    def get(self, picks: list[tuple[int, bool]]) -> None:
        """A call of ``get``."""
        ids = self.picked(picks)
        expected = {each: self.model.told(self.model.find(each), each) for each in ids}
        self.check_found(ids, self.store.lookup.get(["q"], ids), expected)

    @rule(picks=st.lists(PICKS, max_size=2))
    def cancel(self, picks: list[tuple[int, bool]]) -> None:
        """A call of ``cancel``."""
        ids = self.picked(picks)
        expected: dict[str, list[Told]] = {}
        for each in ids:
            expected.setdefault(each, []).extend(self.model.cancel(each, CHAIN_ID))
        self.check_found([], self.store.lookup.cancel(["q"], ids), expected)

    @rule(message=MESSAGES, number=st.integers(0, 2))
    def step(self, message: tuple[str, float, int, str], number: int) -> None:
        """A call of ``step`` for any step of a chain; each id has one chain."""
        identity, due_ms, priority, _ = message
        body = json.dumps({"headers": {"retries": number}, CHAIN_ID: "the chain"})
        word = self.model.make_room(identity, number, "the chain")
        before = self.model.head()
        if not word:
            self.model.put(identity, due_ms, priority, body)
        # Of a chain whose step was due long ago no step runs. The step is noted before it is stored, so also one that
        # is not needed: a chain is known for too long rather than too short a time.
        if word != "cancelled" and due_ms >= FUTURE_MS and identity:
            self.model.chains.add(identity)
        reply = self.store.chains.step("q", "the chain", Offer(identity, repr(due_ms), priority, body))
        head = self.check_announced(before)
        assert reply == (word or ("first" if before.due_ms is None else "head" if head else "behind"))

    @rule(ids=st.lists(IDS, max_size=2))
    def cancel_chains(self, ids: list[str]) -> None:
        """A call of ``cancel_chains``."""
        queues, chains = self.store.chains.cancel_chains(ids)
        assert chains == self.model.chains & set(ids)
        assert not self.model.waiting or queues == ["q"]
        self.model.refused |= set(ids)

    @rule(ids=st.lists(IDS, max_size=2))
    def accept(self, ids: list[str]) -> None:
        """A call of ``accept``."""
        assert self.store.chains.accept(ids) == len(self.model.refused & set(ids))
        self.model.refused -= set(ids)

    @rule(changes=st.lists(CHANGES, min_size=1, max_size=3))
    def reschedule(self, changes: list[tuple[int, str, float, str]]) -> None:
        """A call of ``reschedule``, whose messages may be out of date."""
        before = self.model.head()
        asked = [self.change(*each) for each in changes]
        words = [self.model.reschedule(each.message.id, _read(each), each.due_ms, each.body) for each in asked]
        assert self.store.lookup.reschedule("q", asked) == words
        self.check_announced(before)

    @rule(changes=st.lists(CHANGES, min_size=1, max_size=3))
    def run_now(self, changes: list[tuple[int, str, float, str]]) -> None:
        """A call of ``run_now``, whose messages may be out of date."""
        asked = [self.change(*each) for each in changes]
        words = [self.model.run_now(each.message.id, _read(each), each.body) for each in asked]
        assert self.store.lookup.run_now("q", asked) == words

    @rule(count=st.integers(1, 4), bounds=st.lists(DUES_MS, max_size=2))
    def browse(self, count: int, bounds: list[float]) -> None:
        """Calls of ``browse`` until there is no further page."""
        from_ms, to_ms = (*bounds, -inf)[0], (*bounds, inf, inf)[1]
        page = self.store.scan.browse("q", None, from_ms, to_ms, count)
        found = [*page.messages]
        while page.more:
            page = self.store.scan.browse("q", page, from_ms, to_ms, count)
            found += page.messages
            assert 0 < len(page.messages) <= count
        expected = [each for each in self.model.in_order() if from_ms <= each.due_ms < to_ms]
        # A page tells the id that messages share.
        assert told(found) == [(each.identity, *each.told[1:]) for each in expected]
        assert self.store.scan.count("q", from_ms, to_ms) == len(found)

    @rule()
    def purge(self) -> None:
        """A call of ``purge``."""
        assert self.store.queues.purge("q") == len(self.model.waiting)
        self.model.waiting.clear()

    @invariant()
    def same_as_model(self) -> None:
        """What waits and what is ready is what the model says, and no key is left over."""
        waiting = self.model.waiting
        assert self.client.zcard(in_form(self.store, DUE)) == len(waiting)
        is_sound(self.store)
        ready = self.model.ready
        assert {key: [body.decode() for body in self.client.lrange(key, 0, -1)[::-1]] for key in ready} == ready
        assert not waiting or self.store.queues.names() == ["q"]
        assert {each.decode() for each in self.client.zrange("{delayq}:cancelled", 0, -1)} == self.model.refused
        assert self.ear.heard() == []

    def picked(self, picks: list[tuple[int, bool]]) -> list[str]:
        """Returns the ids of messages by their places."""
        ids = [(each.identity, each.stored) for each in self.model.waiting] + [("unknown", "unknown")]
        return [ids[at % len(ids)][not own] for at, own in picks]

    def change(self, at: int, more: str, due_ms: float, body: str) -> Change:
        """Makes a change of the message at a place, whose body was read as more than it is."""
        [stored] = self.picked([(at, False)])
        message = self.model.stored(stored)
        was = (message.body if message else "") + more
        read_ms = message.due_ms if message else 0.0
        return Change(Waiting("q", stored, read_ms, 0, was.encode(), self.store.layout), due_ms, body.encode())

    def check_found(self, asked: list[str], found: dict[str, list[Waiting]], expected: dict[str, list[Told]]) -> None:
        """Compares what was found for each id, in the order of due times."""
        times = {each: max(asked.count(each), 1) for each in expected}
        assert {each: sorted(told(messages)) for each, messages in found.items()} == {
            each: sorted(messages * times[each]) for each, messages in expected.items() if messages
        }
        for messages in found.values():
            assert [each.due_ms for each in messages] == sorted(each.due_ms for each in messages)

    def check_announced(self, before: Head) -> bool:
        """Compares what was announced with the head that was there before. Returns whether there is a new one."""
        head_ms = self.model.head_ms()
        is_new = self.model.has_new_head(before)
        assert self.ear.heard() == ([announced(self.store, head_ms)] if is_new and head_ms is not None else [])
        return is_new


def test_no_message_is_lost_or_doubled(make_store: MakeStore, ear: Ear) -> None:
    """After any sequence of operations, the store and the lists hold what a model in Python says."""
    store = make_store()
    share = LAYOUT_OF[store.layout].batch_share
    StoreMachine.store, StoreMachine.ear = make_store(transfer_batch=3 * share), ear
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=120, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )
