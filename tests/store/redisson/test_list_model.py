"""Redisson's layout while Redisson works on the same queue: nothing lost, nothing double, everything found."""

import json
from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from kombu_delayq.store import DelayStore
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.redisson_layout import RedissonKeys
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, popped, waiting
from tests.support.store.layouts import redisson_only
from tests.support.store.redisson_layout import TRANSFER, body_in, entry, index_page, is_sound, live, task

pytestmark = redisson_only

COUNTS = st.sampled_from([1, 2, 15])
#: So many that what leaves does not leave the list at once.
MANY = 300
DUES_MS = st.sampled_from([PAST_MS, PAST_MS + 1, PAST_MS + 2, FUTURE_MS, FUTURE_MS + 1])
PLACES = st.integers(0, 1000)


class SharedQueue(RuleBasedStateMachine):
    """A queue that we and a JVM use; each message is known by its id, which is in its body or not."""

    store: DelayStore

    @initialize(is_old=st.booleans(), behind=st.booleans())
    def begin(self, is_old: bool, behind: bool) -> None:
        """Begins with so many that the list is not short, in the form of an old or of a new version of Redisson."""
        self.client = self.store.client
        self.client.flushall()
        self.is_old, self.number = is_old, 0
        self.random, self.page = Random(7), [b"", b"", b""]
        self.waiting: dict[str, bytes] = {}
        self.offer(120, FUTURE_MS + (9 if behind else 0), is_told=True)

    @rule(count=COUNTS, due_ms=DUES_MS, is_told=st.booleans())
    def offer(self, count: int, due_ms: float, is_told: bool) -> None:
        """We offer some messages."""
        bodies = {each: task(each) if is_told else each.encode() for each in self.new_ids(count)}
        self.store.delivery.offer("q", *(waiting(each, due_ms, body) for each, body in bodies.items()))
        self.waiting |= bodies

    @rule(count=COUNTS, due_ms=DUES_MS)
    def offer_as_redisson(self, count: int, due_ms: float) -> None:
        """A JVM offers some messages."""
        for each in self.new_ids(count):
            made = entry(self.random.getrandbits(62), task(each), old=self.is_old)
            self.client.zadd(RedissonKeys(self.store.keys).timeout("q"), {made: due_ms})
            self.client.rpush(RedissonKeys(self.store.keys).listed("q"), made)
            self.waiting[each] = task(each)

    @rule()
    def transfer(self) -> None:
        """We transfer what is due."""
        self.store.delivery.transfer("q")
        self.check_ready()

    @rule(count=st.sampled_from([1, 100]))
    def transfer_as_redisson(self, count: int) -> None:
        """A JVM transfers what is due."""
        names = ("q", RedissonKeys(self.store.keys).timeout("q"), RedissonKeys(self.store.keys).listed("q"))
        form = "dLc0" if self.is_old else "Bc0Lc0"
        self.client.eval(TRANSFER, 3, *names, PAST_MS + 1e9, count, form)
        self.check_ready()

    @rule(places=st.lists(PLACES, max_size=3))
    def cancel(self, places: list[int]) -> None:
        """We cancel messages by their ids, whosesoever they are."""
        ids = self.picked(places)
        found = self.store.lookup.cancel(["q"], [*ids, "unknown"])
        assert {each: [message.body for message in messages] for each, messages in found.items()} == {
            each: [self.waiting.pop(each)] for each in ids
        }

    @rule(place=PLACES)
    def remove_as_redisson(self, place: int) -> None:
        """A JVM removes a message."""
        for each in self.picked([place]):
            [made] = [made for made in live(self.store) if body_in(made) == self.waiting[each]]
            assert self.client.zrem(RedissonKeys(self.store.keys).timeout("q"), made) == 1
            assert self.client.lrem(RedissonKeys(self.store.keys).listed("q"), 1, made) == 1
            del self.waiting[each]

    @rule(places=st.lists(PLACES, max_size=3), due_ms=DUES_MS)
    def reschedule(self, places: list[int], due_ms: float) -> None:
        """We change when messages are due."""
        found = self.store.lookup.get(["q"], self.picked(places))
        for each, [message] in found.items():
            [word] = self.store.lookup.reschedule("q", [Change(message, due_ms, message.body or b"")])
            assert word == ("rescheduled" if due_ms >= FUTURE_MS else "due"), each

    @rule()
    def look_for_others(self) -> None:
        """We look for messages of other clients."""
        self.store.lookup.index("q")

    @rule()
    def read_a_page(self) -> None:
        """We go on with a search for messages of other clients that takes many calls."""
        word, _, *self.page = index_page(self.store, *self.page)
        if word == b"end":
            self.page = [b"", b"", b""]

    @rule(is_told=st.booleans())
    def many_for_redisson(self, is_told: bool) -> None:
        """Many messages come, and a JVM removes them, which knows nothing of our index of ids."""
        before = set(live(self.store))
        ids = [f"many{self.number}.{n}" for n in range(MANY)]
        self.number += 1
        self.store.delivery.offer(
            "q", *(waiting(each, FUTURE_MS + 3, task(each) if is_told else each.encode()) for each in ids)
        )
        with self.client.pipeline() as pipe:
            for made in set(live(self.store)) - before:
                pipe.zrem(RedissonKeys(self.store.keys).timeout("q"), made)
                pipe.lrem(RedissonKeys(self.store.keys).listed("q"), 1, made)
            pipe.execute()

    @rule(is_cancelled=st.booleans(), is_told=st.booleans())
    def many(self, is_cancelled: bool, is_told: bool) -> None:
        """Many messages come and go, which leaves garbage in the list."""
        ids = [f"many{self.number}.{n}" for n in range(MANY)]
        self.number += 1
        self.store.delivery.offer(
            "q", *(waiting(each, PAST_MS, task(each) if is_told else each.encode()) for each in ids)
        )
        if is_cancelled:
            assert self.store.lookup.cancel(["q"], ids).keys() == set(ids)
        else:
            while self.store.delivery.transfer("q").more:
                pass
            moved = [each for each in popped(self.client, "q") if b"many" not in each]
            self.count(moved)

    @rule()
    def find_all(self) -> None:
        """Every message is found by its id, alone and whole, and no other waits."""
        found = self.store.lookup.get(["q"], list(self.waiting))
        assert {each: [message.body for message in messages] for each, messages in found.items()} == {
            each: [body] for each, body in self.waiting.items()
        }
        assert self.store.queues.size("q") == len(self.waiting)

    @invariant()
    def sound(self) -> None:
        """What waits is what should, and the keys are as they should be."""
        assert sorted(map(body_in, live(self.store))) == sorted(self.waiting.values())
        if self.waiting:
            is_sound(self.store, removed=MANY)

    def teardown(self) -> None:
        """At the end everything is found."""
        self.find_all()

    def new_ids(self, count: int) -> list[str]:
        """Makes ids."""
        self.number += count
        return [f"i{self.number - n}" for n in range(count)]

    def picked(self, places: list[int]) -> list[str]:
        """Returns ids of messages that wait by their places, without those of the beginning, each once."""
        ids = list(self.waiting)[100:]
        return list(dict.fromkeys(ids[at % len(ids)] for at in places)) if ids else []

    def check_ready(self) -> None:
        """Takes what is ready: it waited, and waits no more."""
        self.count(popped(self.client, "q"))

    def count(self, bodies: list[bytes]) -> None:
        """Notes messages as delivered: each waited, and waits no more."""
        for body in bodies:
            identity = json.loads(body)["headers"]["id"] if body.startswith(b"{") else body.decode()
            assert self.waiting.pop(identity) == body


def test_a_queue_that_a_jvm_uses_too(make_store: MakeStore) -> None:
    """After any sequence of what we and Redisson do, nothing is lost or double, and each message is found by its id."""
    SharedQueue.store = make_store()
    run_state_machine_as_test(
        SharedQueue,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
