"""The store against a model in Python: no message lost, none doubled, order kept, each head announced."""

from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from kombu_delayq.results import Offer
from kombu_delayq.store import DelayStore
from tests.lua.conftest import MakeStore
from tests.lua.keyspace import FUTURE_MS, PAST_MS, Ear, opened

STEPS = (0, 3, 6, 9)
UNACKED = ("unacked_index", "unacked")
#: Few of each, so that ids and due times meet often.
IDS = st.sampled_from(["a", "b", "c", "ü", ""])
DUES_MS = st.sampled_from([PAST_MS, PAST_MS + 0.001, PAST_MS + 1, FUTURE_MS, FUTURE_MS + 0.5])
BODIES = st.sampled_from(["", "x", "y", "z"])
MESSAGES = st.tuples(IDS, DUES_MS, st.integers(0, 9), BODIES)


@dataclass
class Waiting:
    identity: str
    due_ms: float
    priority: int
    body: str
    order: int
    renamed: bool = False

    @property
    def key(self) -> str:
        """The list that it goes to."""
        step = max(step for step in STEPS if step <= self.priority)
        return f"q\x06\x16{step}" if step else "q"


class StoreMachine(RuleBasedStateMachine):
    """Offers, adoptions, transfers and purges in any order."""

    store: DelayStore
    ear: Ear

    @initialize()
    def begin(self) -> None:
        """Empties the server and the model."""
        self.client = self.store.client
        self.client.flushall()
        self.model: list[Waiting] = []
        self.ready: dict[str, list[str]] = {}
        self.offered = 0

    @rule(messages=st.lists(MESSAGES, min_size=1, max_size=4))
    def offer(self, messages: list[tuple[str, float, int, str]]) -> None:
        """A call of ``offer`` with one or more messages."""
        before = self.head_ms()
        states = [self.take_in(*message) for message in messages]
        reply = self.store.offer("q", *(Offer(i, repr(due), priority, body) for i, due, priority, body in messages))
        assert reply[1:] == tuple(states.count(state) for state in ("offered", "repeated", "renamed"))
        self.check_place(reply.place, before)

    @rule(message=MESSAGES)
    def adopt(self, message: tuple[str, float, int, str]) -> None:
        """A call of ``adopt`` for a message that a consumer holds."""
        identity, due_ms, priority, body = message
        self.client.zadd("unacked_index", {"tag": 1})
        self.client.hset("unacked", "tag", body)
        before = self.head_ms()
        adopted = self.store.adopt("q", Offer(identity, repr(due_ms), priority, body), "tag", *UNACKED)
        assert adopted == (due_ms >= FUTURE_MS)
        assert self.client.exists(*UNACKED) == (0 if adopted else 2)
        self.client.delete(*UNACKED)
        if adopted:
            self.take_in(*message)
        self.check_announced(before)

    @rule()
    def transfer(self) -> None:
        """A call of ``transfer``, which moves at most a batch."""
        due = sorted(
            (each for each in self.model if each.due_ms < FUTURE_MS), key=lambda each: (each.due_ms, each.order)
        )
        done = self.store.transfer("q")
        moved, rest = due[:3], due[3:]
        assert done.lateness_ms == [done.now_ms - each.due_ms for each in moved]
        assert done.more == bool(rest)
        for each in moved:
            self.model.remove(each)
            self.ready.setdefault(each.key, []).append(each.body)
        assert done.next_due_ms == self.head_ms()

    @rule()
    def purge(self) -> None:
        """A call of ``purge``."""
        assert self.store.purge("q") == len(self.model)
        self.model.clear()

    @invariant()
    def same_as_model(self) -> None:
        """What waits and what is ready is what the model says, and no key is left over."""
        assert self.client.zcard("delayq:{q}:due") == len(self.model)
        values = sorted(opened(value).decode() for value in self.client.hvals("delayq:{q}:backup"))
        assert values == sorted(f"{each.priority}{each.body}" for each in self.model)
        lists = {key: [body.decode() for body in self.client.lrange(key, 0, -1)[::-1]] for key in self.ready}
        assert lists == self.ready
        assert not self.model or self.store.queues() == ["q"]

    def take_in(self, identity: str, due_ms: float, priority: int, body: str) -> str:
        """Does to the model what ``put`` does to the store."""
        self.offered += 1
        new = Waiting(identity, due_ms, priority, body, self.offered)
        holders = [each for each in self.model if each.identity == identity]
        # What got a name of its own keeps it when the id is free again: an equal message is then a new one.
        state = "renamed" if any(not each.renamed for each in holders) else "offered"
        new.renamed = state == "renamed"
        known = holders if new.renamed else []
        if any((each.priority, each.body) == (priority, body) for each in known):
            return "repeated"
        self.model.append(new)
        return state

    def head_ms(self) -> float | None:
        """When the model's next message is due."""
        return min((each.due_ms for each in self.model), default=None)

    def check_place(self, place: str, before: float | None) -> None:
        """Compares what an offer said of its place with the head that was there before."""
        new_head = before is None or (self.head_ms() or 0) < before
        assert place == ("first" if before is None else "head" if new_head else "behind")
        self.check_announced(before)

    def check_announced(self, before: float | None) -> None:
        """Compares what was announced with the head that was there before."""
        head = self.head_ms()
        assert self.ear.heard() == ([] if head == before else [f"{head:.17g} q"])


def test_no_message_is_lost_or_doubled(make_store: MakeStore, ear: Ear) -> None:
    """After any sequence of operations, the store and the lists hold what a model in Python says."""
    StoreMachine.store, StoreMachine.ear = make_store(transfer_batch=3), ear
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=120, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )
