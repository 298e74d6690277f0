"""What worlds of the explorer are made of: a queue, its messages, its consumers, a leader, a killer and a user."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from kombu_delayq.message.once import key_of
from kombu_delayq.message.unacked import read_note
from kombu_delayq.redis import checked, scripts
from kombu_delayq.store import DelayStore
from kombu_delayq.store.hash_layout import body_of, id_of
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import InFlight, LeaseEnded, Offer, Request, Requeued, Waiting
from kombu_delayq.text import as_bytes
from tests.support.store.explorer import GRAIN_MS, Database, Step, Violation
from tests.support.store.stepwise import Processes, Work

QUEUE = "q"
#: What the name of a key ends with while somebody else's is in its place.
_ASIDE = ":aside"


class Consumer(NamedTuple):
    """A consumer, as its process knows it.

    Attributes:
        name: Its name; empty without a lease.
        number: Number in the tag of its next message.
        held: Tags of the messages that it works on, each with the id of its message.
        going_on: Tags of the messages that it has acknowledged early, whose tasks go on.
        landed: Under which name it has waited, so that a message may be in that in-flight list; empty without a wait.
        lapsed: Whether its lease has ended: since then what it holds may go back.
        turns: How often it still takes messages.
        lives: Whether its process lives.
    """

    name: str = ""
    number: int = 1
    held: tuple[tuple[str, str], ...] = ()
    going_on: tuple[str, ...] = ()
    landed: str = ""
    lapsed: bool = False
    turns: int = 2
    lives: bool = True


class Fleet(NamedTuple):
    """What the actors know.

    Attributes:
        stored: How many messages of each id are in Redis.
        left: What each other actor still does, in its order.
        consumers: The consumers.
        hour: Hours that have passed.
        fenced: Consumers that the leader is giving back, each with what it has read of their messages.
        read: Messages that a user has read, and is about to change.
        spoiled: The key in whose place somebody else's is, by its name in ``Keys``; empty for none.
        looked: What users have read of the dead letters.
        works: Code that is under way call by call, by name.
    """

    stored: tuple[tuple[str, int], ...] = ()
    left: tuple[tuple[str, ...], ...] = ()
    consumers: tuple[Consumer, ...] = ()
    hour: int = 0
    fenced: tuple[tuple[str, tuple[Requeued, ...] | None], ...] = ()
    read: tuple[Waiting, ...] = ()
    spoiled: str = ""
    looked: tuple[tuple[str, tuple[bytes, ...]], ...] = ()
    works: tuple[tuple[str, Work], ...] = ()

    def with_more(self, identity: str, count: int = 1) -> "Fleet":
        """Returns what is known once so many more messages of an id are in Redis; fewer, if it is negative."""
        counts = Counter(dict(self.stored))
        counts[identity] += count
        return self._replace(stored=tuple(sorted((each, number) for each, number in counts.items() if number)))

    def with_consumer(self, at: int, **changes: Any) -> "Fleet":
        """Returns what is known once a consumer has changed."""
        changed = self.consumers[at]._replace(**changes)
        return self._replace(consumers=(*self.consumers[:at], changed, *self.consumers[at + 1 :]))

    def with_work(self, name: str, work: Work) -> "Fleet":
        """Returns what is known once some code has gone on."""
        return self._replace(works=tuple(sorted((dict(self.works) | {name: work}).items())))

    def with_others(self, name: str, **changes: Any) -> "Fleet":
        """Returns what is known once a consumer has changed that others know by its name."""
        [at] = [at for at, each in enumerate(self.consumers) if each.name == name] or [None]
        return self if at is None else self.with_consumer(at, **changes)


def message_of(identity: str, hour: int, note: str = "") -> str:
    """Returns a message that is due so many hours after the beginning, 0 for one that is due at once."""
    properties = {"delivery_tag": identity, "delivery_info": {"exchange": "", "routing_key": QUEUE}}
    return json.dumps({"body": note, "headers": {"id": identity, "hour": hour}, "properties": properties})


def about(body: bytes | str) -> tuple[str, int]:
    """Returns the id of a message, and when it is due."""
    headers = json.loads(body)["headers"]
    return headers["id"], headers["hour"]


class FleetWorld:
    """A store, and who uses it.

    Args:
        store: The store.
        actors: What each actor does, in its order: words, of which the first names a method ``do_``.
        consumers: The consumers, which do what they can.
    """

    ignored = (b":counts", b":minutes", b":heads")

    def __init__(self, store: DelayStore, actors: Sequence[Sequence[str]], consumers: Sequence[Consumer] = ()) -> None:
        self.store, self._consumers = store, tuple(consumers)
        self._actors = tuple(tuple(steps) for steps in actors)
        self.begun_ms = store.now_ms()

    def begin(self) -> Fleet:
        """Returns what is known at first."""
        self.begun_ms = self.store.now_ms()
        self.store.consumers.note_queues([QUEUE])
        return Fleet(left=self._actors, consumers=self._consumers)

    def beside(self) -> Any:
        """There is nothing beside Redis."""
        return None

    def put_back(self, beside: Any) -> None:
        """There is nothing beside Redis."""

    def told(self, database: Database) -> Mapping[bytes, Any]:
        """All that Redis has tells states apart."""
        return database.values

    def steps(self, fleet: Fleet) -> Iterator[Step[Fleet]]:
        """Yields what each actor can do next."""
        for at, (step, *later) in ((at, steps) for at, steps in enumerate(fleet.left) if steps):
            what, *words = step.split()
            if what == "begin" and words[0] in dict(fleet.works) and dict(fleet.works)[words[0]].lives:
                continue  # it does one thing after the other
            after = fleet._replace(left=(*fleet.left[:at], tuple(later), *fleet.left[at + 1 :]))
            yield step, partial(self._try, getattr(self, f"do_{what}"), after, *words)
        for name, work in fleet.works:
            if work.lives:
                yield f"{name} goes on", partial(self._go_on, fleet, name, work)
        for at, consumer in enumerate(fleet.consumers):
            for what in self._of_consumer(fleet, consumer):
                yield f"consumer {at} {what.__name__.strip('_')}", partial(self._try, what, fleet, at, consumer)
        for name, rows in fleet.fenced:
            act = self._find_held if rows is None else self._give_back
            yield f"leader {act.__name__.strip('_')} {name}", partial(self._try, act, fleet, name)
        if fleet.read:
            for act in (self._reschedule, self._run_now):
                yield f"user {act.__name__.strip('_')}", partial(self._try, act, fleet)

    def _try(self, act: Callable[..., Fleet], fleet: Fleet, *args: Any) -> Fleet:
        """Takes a step. Where a key is spoiled, Redis may refuse it; then it has changed nothing."""
        try:
            return act(fleet, *args)
        except ResponseError as error:
            if not (fleet.spoiled and "WRONGTYPE" in str(error)):
                raise
            return fleet

    # What others do, by the first word of the step.

    def do_offer(self, fleet: Fleet, identity: str, hour: str, note: str = "") -> Fleet:
        """A publisher stores a message, or stores it again, because it has not heard whether it is stored."""
        due = self.begun_ms + int(hour) * GRAIN_MS - (0 if int(hour) else 1000)
        found = self.store.delivery.offer(QUEUE, Offer(identity, repr(due), 0, message_of(identity, int(hour), note)))
        return fleet.with_more(identity, found.offered + found.renamed)

    def do_push(self, fleet: Fleet, identity: str) -> Fleet:
        """A publisher pushes a message that is due at once."""
        self.store.delivery.push(QUEUE, Offer(identity, "", 0, message_of(identity, 0)))
        return fleet.with_more(identity)

    def do_transfer(self, fleet: Fleet) -> Fleet:
        """The leader moves what is due."""
        self.store.delivery.transfer(QUEUE)
        return fleet

    def do_hour(self, fleet: Fleet) -> Fleet:
        """An hour passes: all due times are an hour nearer."""
        due = self._stored[0]
        for member, score in self.store.client.zrange(due, 0, -1, withscores=True):
            self.store.client.zadd(due, {member: score - GRAIN_MS})
        return fleet._replace(hour=fleet.hour + 1)

    def do_cancel(self, fleet: Fleet, identity: str) -> Fleet:
        """A user removes what waits under an id or a waiting key."""
        for found in self.store.lookup.cancel([QUEUE], [identity]).get(identity, []):
            fleet = fleet.with_more(about(found.body or b"")[0], -1)
        return fleet

    def do_read(self, fleet: Fleet, identity: str) -> Fleet:
        """A user reads what waits under an id, to change it."""
        return fleet._replace(read=tuple(self._waiting(identity)))

    def do_lapse(self, fleet: Fleet, at: str) -> Fleet:
        """The lease of a consumer ends: its process stands still, or is dead."""
        consumer = fleet.consumers[int(at)]
        if not consumer.name:
            return fleet
        ends = {consumer.name: self.store.now_ms() - GRAIN_MS}
        ended = self.store.client.zadd(self._key("consumers"), ends, xx=True, lt=True, ch=True)
        return fleet.with_consumer(int(at), lapsed=consumer.lapsed or bool(ended))

    def do_kill(self, fleet: Fleet, at: str) -> Fleet:
        """The process of a consumer is killed."""
        return fleet.with_consumer(int(at), lives=False)

    def do_begin(self, fleet: Fleet, name: str, *words: str) -> Fleet:
        """A process begins with a method ``run_``, which makes one call to Redis a step."""
        return self._go_on(fleet, name, Work(words))

    def do_die(self, fleet: Fleet, name: str) -> Fleet:
        """A process dies in the middle of what it does, if it does anything."""
        work = dict(fleet.works).get(name)
        return fleet if work is None else fleet.with_work(name, work._replace(lives=False))

    def _go_on(self, fleet: Fleet, name: str, work: Work) -> Fleet:
        what, *words = work.words
        return fleet.with_work(
            name, self.processes.go_on(work, lambda store: getattr(self, f"run_{what}")(store, *words))
        )

    def prepare(self, *operations: str) -> None:
        """Lets Redis know scripts, so that no call is made twice."""
        for operation in operations:
            layout = self.store.layout if operation != "index" else "redisson"
            self.store.client.script_load(scripts.load(operation, layout).text)

    @cached_property
    def processes(self) -> Processes:
        """Other processes over the same Redis."""
        return Processes(self.store)

    def do_spoil(self, fleet: Fleet, name: str) -> Fleet:
        """Somebody else's key comes in the place of one of ours, which is put aside."""
        key = self._key(name)
        if self.store.client.exists(key):
            self.store.client.rename(key, key + _ASIDE)
        self.store.client.set(key, "somebody else's")
        return fleet._replace(spoiled=name)

    def do_mend(self, fleet: Fleet) -> Fleet:
        """The spoiled key is as it was."""
        key = self._key(fleet.spoiled)
        self.store.client.delete(key)
        if self.store.client.exists(key + _ASIDE):
            self.store.client.rename(key + _ASIDE, key)
        return fleet._replace(spoiled="")

    def do_once(self, fleet: Fleet, mode: str, identity: str, hour: str) -> Fleet:
        """A publisher stores a message unless one of its id or waiting key waits, or in place of that."""
        key = key_of(identity)
        before = Counter(about(one.body or b"")[0] for one in self._waiting(key))
        due = self.begun_ms + int(hour) * GRAIN_MS - (0 if int(hour) else 1000)
        offer = Offer(identity, repr(due), 0, message_of(identity, int(hour), mode))
        [became] = self.store.delivery.offer_once(QUEUE, mode, offer)
        after = Counter(about(one.body or b"")[0] for one in self._waiting(key))
        stays = before and (mode == "keep" or became.outcome == "repeated")
        if became.id not in after or after != (before if stays else Counter({identity: 1})):
            raise Violation(f"{dict(before)} waited, then {dict(after)}: {became}")
        for name in before | after:
            fleet = fleet.with_more(name, after[name] - before[name])
        return fleet

    def _waiting(self, identity: str) -> list[Waiting]:
        return self.store.lookup.get([QUEUE], [identity]).get(identity, [])

    def do_fence(self, fleet: Fleet) -> Fleet:
        """The leader finds consumers whose leases have ended, and fences them off."""
        group = self.store.keys.slot_group(QUEUE)
        late = [lease.name for lease in self.store.consumers.ended().leases.get(group, ())]
        lives = [each.name for each in fleet.consumers if each.name and not each.lapsed]  # it has looked a while ago
        fenced = self.store.consumers.fence([*late, *lives], QUEUE)
        if {*lives} & {*fenced}:
            raise Violation(f"{fenced} are fenced off, and the leases of {lives} have not ended")
        for name in fenced:
            fleet = fleet.with_others(name, lapsed=True)
        known = dict.fromkeys(fenced) | {name: rows for name, rows in fleet.fenced if rows is not None}
        return fleet._replace(fenced=tuple(sorted(known.items())))

    # What the leader goes on with.

    def _find_held(self, fleet: Fleet, name: str) -> Fleet:
        tags = self.store.consumers.tags_of([name], QUEUE).get(name, [])
        rows = []
        for held in self.store.consumers.notes(tags[::-1], QUEUE) if tags else ():
            note = read_note(as_bytes(held.note))
            if note is None:
                raise Violation(f"the note of {held.tag} cannot be read")
            rows.append(Requeued(held.tag, QUEUE, 0, note.given_back()))
        return fleet._replace(fenced=tuple(sorted((dict(fleet.fenced) | {name: tuple(rows)}).items())))

    def _give_back(self, fleet: Fleet, name: str) -> Fleet:
        rows = dict(fleet.fenced)[name] or ()
        checked(self.store.fetching.requeue_each(rows, "next", redelivers=True, fetched_from=QUEUE)[1].values())
        checked(self.store.fetching.return_in_flight({name: [QUEUE]}).values())
        self.store.consumers.leave([name], QUEUE)
        return fleet._replace(fenced=tuple(each for each in fleet.fenced if each[0] != name))

    # What a user goes on with.

    def _reschedule(self, fleet: Fleet) -> Fleet:
        return self._changed(fleet, self.store.lookup.reschedule, fleet.hour + 2)

    def _run_now(self, fleet: Fleet) -> Fleet:
        return self._changed(fleet, self.store.lookup.run_now, 0)

    def _changed(self, fleet: Fleet, change: Callable[..., list[str]], hour: int) -> Fleet:
        due_ms = self.store.now_ms() + 2 * GRAIN_MS
        changes = []
        for message in fleet.read:
            identity, _ = about(message.body or b"")
            changes.append(Change(message, due_ms, message_of(identity, hour).encode()))
        change(QUEUE, changes)
        return fleet._replace(read=())

    # What a consumer does.

    def _of_consumer(self, fleet: Fleet, consumer: Consumer) -> Iterator[Callable[[Fleet, int, Consumer], Fleet]]:
        if not consumer.lives:
            return
        if not consumer.name:
            if consumer.turns:
                yield self._begin
            return
        if consumer.turns:
            yield self._fetch
            if not (consumer.landed or consumer.lapsed):  # a wait is over long before a lease ends
                yield self._wait
        if consumer.held:
            yield self._ack
            yield self._reject
        if consumer.lapsed:
            yield self._renew
        if not consumer.turns and not consumer.held and not consumer.landed:
            yield self._leave

    def _begin(self, fleet: Fleet, at: int, consumer: Consumer) -> Fleet:
        number = sum(len(each.name) > 0 for each in fleet.consumers)
        name = f"host:{at}:{'ab'[number % 2]}{at}{consumer.number}"
        if not self.store.consumers.heartbeat(name, [QUEUE], is_new=True):
            raise Violation(f"{name} gets no lease")
        return fleet.with_consumer(at, name=name, held=(), lapsed=False)

    def _fetch(self, fleet: Fleet, at: int, consumer: Consumer) -> Fleet:
        in_flight = [InFlight(QUEUE, 0, consumer.landed)] if consumer.landed else []
        request = Request(consumer.name, consumer.number, 2, [QUEUE], in_flight=in_flight)
        try:
            found = self.store.fetching.fetch(request)
        except LeaseEnded:
            if not consumer.lapsed:
                raise Violation(f"{consumer.name} has lost its lease") from None
            return fleet.with_consumer(at, turns=consumer.turns - 1, landed="")
        held = tuple((each.tag, about(each.body)[0]) for each in found)
        number = consumer.number + request.most
        return fleet.with_consumer(at, held=consumer.held + held, number=number, turns=consumer.turns - 1, landed="")

    def _wait(self, fleet: Fleet, at: int, consumer: Consumer) -> Fleet:
        in_flight = InFlight(QUEUE, 0, consumer.name)
        moved = self.store.client.lmove(*self.store.fetching.in_flight_keys(in_flight), "RIGHT", "LEFT")
        return fleet.with_consumer(at, landed=consumer.name if moved is not None else "")

    def _ack(self, fleet: Fleet, at: int, consumer: Consumer) -> Fleet:
        (tag, identity), *held = consumer.held
        missing = self.store.fetching.ack([tag], QUEUE)
        self._check_missing(consumer, missing)
        fleet = fleet if missing else fleet.with_more(identity, -1)
        return fleet.with_consumer(at, held=tuple(held))

    def _reject(self, fleet: Fleet, at: int, consumer: Consumer) -> Fleet:
        (tag, identity), *held = consumer.held
        row = Requeued(tag, QUEUE, 0, message_of(identity, 0, "rejected"))
        self._check_missing(consumer, self.store.fetching.requeue([row], "next"))
        return fleet.with_consumer(at, held=tuple(held))

    def _renew(self, fleet: Fleet, at: int, consumer: Consumer) -> Fleet:
        tags = [tag for tag, _ in consumer.held]
        if self.store.consumers.heartbeat(consumer.name, [QUEUE], tags):
            return fleet.with_consumer(at, lapsed=False)
        # It goes on under another name. Its tasks run to their end; their acknowledgements find nothing.
        return fleet.with_consumer(at, name="", held=(), lapsed=False, number=consumer.number + 100)

    def _leave(self, fleet: Fleet, at: int, consumer: Consumer) -> Fleet:
        checked(self.store.fetching.return_in_flight({consumer.name: [QUEUE]}).values())
        self.store.consumers.leave([consumer.name], QUEUE)
        return fleet.with_consumer(at, lives=False)

    def _check_missing(self, consumer: Consumer, missing: list[str]) -> None:
        if missing and not consumer.lapsed:
            raise Violation(f"{consumer.name} holds {missing} no more, and its lease has not ended")

    # What has to be so.

    def check(self, fleet: Fleet, database: Database) -> None:
        """Each message is in one place, none before its time, and what belongs together agrees."""
        waiting, running = self.places(fleet, database)
        found = Counter(identity for identity, _ in [*waiting, *running])
        if found != Counter(dict(fleet.stored)):
            raise Violation(f"Redis has {dict(found)}, and should have {dict(fleet.stored)}")
        early = [each for each in running if each[1] > fleet.hour]
        if early:
            raise Violation(f"{early} came after {fleet.hour} h")

    def places(self, fleet: Fleet, database: Database) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        """Returns the messages that wait for their time, and all others, each with its hour.

        Raises:
            Violation: An index differs from what it is an index of.
        """
        values = dict(database.values)
        if fleet.spoiled:
            key = self._key(fleet.spoiled)
            values[as_bytes(key)] = values.pop(as_bytes(key + _ASIDE), {})
        due, bodies = (values.get(as_bytes(key), {}) for key in self._stored[:2])
        is_hash = self.store.layout == "hash"
        if {*map(id_of, due)} != {*bodies} if is_hash else sorted(due) != sorted(bodies):
            raise Violation(f"the index has {sorted(due)}, and there are bodies of {sorted(bodies)}")
        index, unacked = (values.get(as_bytes(self._key(name)), {}) for name in ("unacked_index", "unacked"))
        if index.keys() != unacked.keys():
            raise Violation(f"tags {sorted(index)} are held, and there are notes of {sorted(unacked)}")
        running = [about(json.dumps(json.loads(note)[0])) for note in unacked.values()]
        for key, value in values.items():
            if isinstance(value, list) and self.is_list_of_messages(key):
                running += map(about, value)
        # In Redisson's layout an entry is a message behind an id and a length.
        waiting = map(body_of, bodies.values()) if is_hash else (entry[16:] for entry in bodies)
        return [*map(about, waiting)], running

    def is_list_of_messages(self, key: bytes) -> bool:
        """Whether a key is a list of messages that are not delayed."""
        return key == QUEUE.encode() or b":landing:" in key

    def end(self, fleet: Fleet) -> None:
        """All leases end, all time passes, and a new consumer takes what there is: then nothing is left."""
        if fleet.spoiled:
            fleet = self.do_mend(fleet)
        for _ in range(4):
            fleet = self.do_hour(fleet)
        for at in range(len(fleet.consumers)):
            fleet = self.do_lapse(fleet, str(at))
        fleet = self.do_fence(fleet)
        for name, _ in fleet.fenced:
            fleet = self._give_back(self._find_held(fleet, name), name)
        while self.store.delivery.transfer(QUEUE).moved:
            pass
        self.store.consumers.heartbeat("host:9:last", [QUEUE], is_new=True)
        found = self.store.fetching.fetch(Request("host:9:last", 1, 100, [QUEUE]))
        if Counter(about(each.body)[0] for each in found) != Counter(dict(fleet.stored)):
            raise Violation(f"{found} came in the end, and Redis should have had {dict(fleet.stored)}")
        if self.store.fetching.ack([each.tag for each in found], QUEUE):
            raise Violation("what was taken last is not held")
        self.store.consumers.leave(["host:9:last"], QUEUE)
        self.check_end()

    def check_end(self) -> None:
        """Redis has kept nothing but what it counts, and which queues there are."""
        keys = self.store.keys
        kept = {as_bytes(key) for key in (keys.queues, keys.groups, self._stored[2]) if key}
        found = [key for key in self.store.client.keys("*") if not any(part in key for part in self.ignored)]
        left = sorted(set(found) - kept)
        if left:
            raise Violation(f"Redis still has {left}")

    @property
    def _stored(self) -> Sequence[str]:
        """The keys of the queue's delayed messages."""
        return LAYOUT_OF[self.store.layout].keys(self.store.keys, QUEUE)

    def _key(self, name: str) -> str:
        return str(getattr(self.store.keys, name)(QUEUE))
