"""Every order of what publishers, consumers, a leader and a killer do with messages of keys that run one at once."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from celery_ext.limits import LIMIT_HEADER, Limit, LimitStore
from celery_ext.limits.keys import LimitKeys
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Request, Requeued
from kombu_delayq.text import as_bytes, as_text
from tests.store.explore.test_kernel import SECONDS
from tests.support.store.explorer import GRAIN_MS, Database, Violation, search
from tests.support.store.limited import sorted_of
from tests.support.store.worlds import QUEUE, Consumer, Fleet, FleetWorld, about, message_of

#: How many messages of a key are in hand at once.
LIMIT = 1

pytestmark = pytest.mark.timeout(SECONDS + 60)


def key_of(identity: str) -> str:
    """Returns the key of a message; those whose ids begin with ``-`` have none."""
    return "" if identity[0] == "-" else f"limit:{identity[0]}"


def limited(identity: str, note: str = "") -> str:
    """Returns a message with its key."""
    message = json.loads(message_of(identity, 0, note))
    return json.dumps({**message, "headers": {**message["headers"], LIMIT_HEADER: key_of(identity)}})


class PlacesWorld(FleetWorld):
    """A queue whose messages have keys, each with one place.

    Args:
        store: As of ``FleetWorld``.
        actors: As of ``FleetWorld``.
        consumers: As of ``FleetWorld``.
        ways: What consumers do with what they hold.
    """

    def __init__(
        self, store: DelayStore, actors: Sequence[Sequence[str]], consumers: Sequence[Consumer], ways: str
    ) -> None:
        super().__init__(store, actors, consumers)
        self._limits, self._own = store.part(LimitStore), LimitKeys(store.keys)
        self._ways = ways.split()

    def begin(self) -> Fleet:
        """The limit is declared."""
        self._limits.declare({"limit": Limit(running=LIMIT)}, [QUEUE])
        return super().begin()

    def do_push(self, fleet: Fleet, identity: str) -> Fleet:
        """A publisher pushes a message of a key."""
        self.store.client.lpush(QUEUE, limited(identity))
        return fleet.with_more(identity)

    def do_hour(self, fleet: Fleet) -> Fleet:
        """An hour passes, for rests, too."""
        rests = self._own.rests(QUEUE)
        for name, until_ms in self.store.client.zrange(rests, 0, -1, withscores=True):
            self.store.client.zadd(rests, {name: until_ms - GRAIN_MS})
        return super().do_hour(fleet)

    def do_refresh(self, fleet: Fleet) -> Fleet:
        """The leader looks after the keys, and finds nothing wrong."""
        if self._limits.refresh(QUEUE):
            raise Violation("numbers were wrong")
        return fleet

    def do_nudge(self, fleet: Fleet) -> Fleet:
        """The leader ends rests that are over."""
        self._limits.nudge([QUEUE])
        return fleet

    def do_unpark(self, fleet: Fleet) -> Fleet:
        """The leader puts messages back into the list of the queue."""
        self._limits.unpark(QUEUE)
        return fleet

    def do_cancel(self, fleet: Fleet, identity: str) -> Fleet:
        """A user takes a message out of its sub-queue, if it is there."""
        members = [each.member for each in self._limits.parked(QUEUE) if about(each.message)[0] == identity]
        return fleet.with_more(identity, -sum(self._limits.take_parked(QUEUE, members)))

    def told(self, database: Database) -> Mapping[bytes, Any]:
        """Virtual times count from the latest turn on, and a key that is behind it begins there."""
        known, turns = as_bytes(self._key("parked_keys")), as_bytes(self._own.turns(QUEUE))
        values = dict(database.values)
        if known in values:
            now, *meta = values[known][b"\0"].split()
            rows = {name: noted.split() for name, noted in values[known].items() if name != b"\0"}
            values[known] = {
                name: (waits, runs, bound, max(float(at) - float(now), 0.0), full)
                for name, (waits, runs, bound, at, full) in rows.items()
            } | {b"\0": meta}
            scores = values.get(turns, {})
            values[turns] = {name: max(float(score) - float(now), 0.0) for name, score in scores.items()}
        return values

    # What a consumer does.

    def _of_consumer(self, fleet: Fleet, consumer: Consumer) -> Iterator[Callable[[Fleet, int, Consumer], Fleet]]:
        if not consumer.lives:
            return
        is_done = not (consumer.turns or consumer.held or consumer.going_on)
        if not consumer.name:
            if consumer.turns:
                yield self._begin
        elif consumer.turns:
            yield self._fetch
        elif is_done and not consumer.lapsed:
            yield self._leave
        if consumer.held:
            yield from (getattr(self, f"_{way}") for way in self._ways)
        if consumer.going_on:
            yield self._end
        if consumer.name and consumer.lapsed:
            yield self._renew

    def _fetch(self, fleet: Fleet, at: int, consumer: Consumer) -> Fleet:
        if consumer.turns % 2:  # one that has one free process
            return super()._fetch(fleet, at, consumer)
        request = Request(consumer.name, consumer.number, 2, [QUEUE], free=1)
        if consumer.lapsed:
            return super()._fetch(fleet, at, consumer)
        found = self.store.fetching.fetch(request)
        if len([each for each in found if key_of(about(each.body)[0])]) > 1:
            raise Violation(f"{consumer.name} gets {found} for one process")
        held = tuple((each.tag, about(each.body)[0]) for each in found)
        return fleet.with_consumer(
            at, held=consumer.held + held, number=consumer.number + 2, turns=consumer.turns - 1, landed=""
        )

    def _early(self, fleet: Fleet, at: int, consumer: Consumer) -> Fleet:
        (tag, identity), *held = consumer.held
        missing = self.store.fetching.ack([tag], QUEUE, going_on=1)
        self._check_missing(consumer, missing)
        fleet = fleet if missing else fleet.with_more(identity, -1)
        return fleet.with_consumer(at, held=tuple(held), going_on=(*consumer.going_on, tag))

    def _end(self, fleet: Fleet, at: int, consumer: Consumer) -> Fleet:
        tag, *others = consumer.going_on
        self.store.fetching.ack([tag], QUEUE)
        return fleet.with_consumer(at, going_on=tuple(others))

    def _reject(self, fleet: Fleet, at: int, consumer: Consumer, place: Any = "next") -> Fleet:
        (tag, identity), *held = consumer.held
        row = Requeued(tag, QUEUE, 0, limited(identity, "rejected"))
        self._check_missing(consumer, self.store.fetching.requeue([row], place))
        return fleet.with_consumer(at, held=tuple(held))

    def _requeue(self, fleet: Fleet, at: int, consumer: Consumer) -> Fleet:
        return self._reject(fleet, at, consumer, "last")

    def _back_off(self, fleet: Fleet, at: int, consumer: Consumer) -> Fleet:
        (tag, identity), *held = consumer.held
        rest_s = GRAIN_MS / 1000
        text = limited(identity, "again")
        if not self._limits.back_off(QUEUE, key_of(identity), rest_s, tag, text, 0, is_early=False):
            self._check_missing(consumer, [tag])
        return fleet.with_consumer(at, held=tuple(held))

    # What has to be so.

    def places(self, fleet: Fleet, database: Database) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        """What waits in sub-queues counts, too."""
        waiting, running = super().places(fleet, database)
        parked = sorted_of(database.values, self.store).waiting.values()
        return waiting, [*running, *(about(message) for of_key in parked for message in of_key)]

    def check(self, fleet: Fleet, database: Database) -> None:
        """Places are what is in hand, at most the limit of each key, and what is noted of keys is so."""
        super().check(fleet, database)
        found = sorted_of(database.values, self.store)
        if found.faults:
            raise Violation(f"{found.faults} of {found}")
        notes = database.values.get(as_bytes(self._key("unacked")), {})
        held = {as_text(tag) for tag, note in notes.items() if key_of(about(json.dumps(json.loads(note)[0]))[0])}
        known = database.values.get(as_bytes(self._key("consumers")), {})
        going_on = {tag for each in fleet.consumers for tag in each.going_on}
        ended = {tag for tag in going_on if tag.rpartition(".")[0].encode() not in known}
        if found.places.keys() != held | (going_on - ended):
            raise Violation(f"{found.places} are taken, and {held} are held, and {going_on} go on")
        most = Counter(found.places.values()).most_common(1)
        if most and most[0][1] > LIMIT:
            raise Violation(f"{found.places} are more than {LIMIT}")

    def end(self, fleet: Fleet) -> None:
        """All consumers end, and a new one takes one message after the other: all come, and nothing is left."""
        for _ in range(4):
            fleet = self.do_hour(fleet)
        for at in range(len(fleet.consumers)):
            fleet = self.do_lapse(fleet, str(at))
        fleet = self.do_fence(fleet)
        for name, _ in fleet.fenced:
            fleet = self._give_back(self._find_held(fleet, name), name)
        last, came = "host:9:last", Counter[str]()
        self.store.consumers.heartbeat(last, [QUEUE], is_new=True)
        for first in range(1, 100, 10):
            found = self.store.fetching.fetch(Request(last, first, 10, [QUEUE]))
            came.update(about(each.body)[0] for each in found)
            self.store.fetching.ack([each.tag for each in found], QUEUE)
        if came != Counter(dict(fleet.stored)):
            raise Violation(f"{dict(came)} came in the end, and Redis should have had {dict(fleet.stored)}")
        self.store.consumers.leave([last], QUEUE)
        known = self._key("parked_keys")
        if self.store.client.hlen(known) > 1:
            raise Violation(f"{self.store.client.hgetall(known)} is known in the end")
        for key in (self._own.limits(QUEUE), self._own.limits(""), self._own.idle(QUEUE), known):
            self.store.client.delete(key)
        self.check_end()


#: What each actor does, in its order; the consumers; and what these do with what they hold.
WORLDS: dict[str, tuple[list[list[str]], list[Consumer], str]] = {
    "two consumers of two keys": (
        [["push a1", "push a2", "push b1"]],
        [Consumer(turns=2), Consumer(turns=1)],
        "early",
    ),
    "what is held goes back": (
        [["push a1", "push a2", "push b1"]],
        [Consumer(turns=2)],
        "reject requeue early",
    ),
    "a key rests": (
        [["push a1", "push a2", "push -1"], ["hour"], ["nudge"]],
        [Consumer(turns=2)],
        "ack back_off",
    ),
    "a consumer is silent with what it holds": (
        [["push a1", "push a2"], ["lapse 0"], ["fence"]],
        [Consumer(turns=1), Consumer(turns=1)],
        "early",
    ),
    "a consumer is killed": (
        [["push a1", "push a2"], ["kill 0", "lapse 0"], ["fence"]],
        [Consumer(turns=1), Consumer(turns=1)],
        "early reject",
    ),
    "a silent consumer gives back what goes back": (
        [["push a1"], ["lapse 0"], ["fence"], ["hour"]],
        [Consumer(turns=1), Consumer(turns=1)],
        "back_off",
    ),
    "others take out what waits": (
        [["push a1", "push a2", "push b1"], ["cancel a2"], ["unpark"], ["refresh"]],
        [Consumer(turns=2)],
        "early reject",
    ),
}


def explore(store: DelayStore, world: str, seconds: float = SECONDS) -> None:
    """Searches a world, for some time at the most."""
    search(PlacesWorld(store, *WORLDS[world]), store.client, world, seconds)


@pytest.mark.parametrize("layout", ["hash"], indirect=True)
@pytest.mark.parametrize("world", WORLDS)
def test_places_are_what_is_in_hand(store: DelayStore, world: str) -> None:
    """In no order is a place lost or taken twice, a message in two places, or a key without its turn."""
    explore(store, world)
