"""The store's operations on messages in the hands of consumers: fetched, acknowledged, put back."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from math import inf
from typing import Any, Literal

from redis.exceptions import ResponseError

from kombu_delayq.message import pages, read_note
from kombu_delayq.redis import (
    Args,
    Call,
    Command,
    HashKey,
    ListKeys,
    RedisCommands,
    Rows,
    ZSetKey,
    check_reached,
    checked,
    operation,
    time_ms,
)
from kombu_delayq.store.client import MOST_QUEUES, HeldKeys, StoreClient
from kombu_delayq.store.keys import PARKED
from kombu_delayq.store.part import StorePart
from kombu_delayq.store.registry import QueueRegistry
from kombu_delayq.store.types import PAGE, Fetched, InFlight, LeaseEnded, Request, Requeued
from kombu_delayq.text import as_bytes, as_text

#: About the most bytes in the arguments of one call, or in what it fetches.
PAGE_BYTES = 1_000_000
#: The most messages that one call puts back: a message of a limited key takes Redis up to 0.1 ms.
PUT_BACK = 50


@operation(once=True)
def fetch(
    *,
    consumers: ZSetKey,
    held: HeldKeys,
    paused: HashKey,
    lists: ListKeys,
    consumer: str,
    channel: str,
    first: int,
    most: int,
    free: int,
    max_bytes: int,
    flights: int,
    queues: int,
    turns: bool,
    rows: Rows[tuple[str, str]],
) -> Any: ...
@operation()
def ack(*, held: HeldKeys, going_on: int, tags: Args[str]) -> list[str]: ...
@operation()
def requeue(
    *, held: HeldKeys, ready: ListKeys, place: str, rows: Rows[tuple[str, int, str | bytes, str]]
) -> list[str]: ...


class Fetching(StorePart):
    """Fetches messages from queues, and removes or puts back those that are held."""

    def __init__(self, client: StoreClient, registry: QueueRegistry) -> None:
        super().__init__(client, registry)
        # Bounded: a caller over HTTP may name any queue.
        self._lists = lru_cache(MOST_QUEUES)(client.ready)
        self._held = lru_cache(MOST_QUEUES)(client.held)
        self._base = lru_cache(MOST_QUEUES)(self._keys.base)

    def fetch(self, request: Request) -> list[Fetched]:
        """Fetches messages; one round trip.

        Raises:
            LeaseEnded: Nothing was fetched.
        """
        return self.fetched(request, self._client.run(self._fetch_call(request)))

    def fetch_command(self, request: Request, *, by_text: bool = False) -> Command:
        """Returns the command of ``fetch``, for a caller that reads its reply later.

        Args:
            request: What to fetch.
            by_text: Whether the command carries the script, because Redis has not known it.
        """
        return self._client.command(self._fetch_call(request), by_text=by_text)

    def fetched(self, request: Request, reply: Any) -> list[Fetched]:
        """Returns what a reply to ``fetch_command`` says.

        Raises:
            LeaseEnded: Nothing was fetched.
        """
        if isinstance(reply, bytes | str):
            raise LeaseEnded(request.consumer)
        queues = [*(at.queue for at in request.in_flight), *request.queues]
        rows = zip(count(request.first), *(iter(reply),) * 2, strict=False)
        return [
            self._fetched(request, number, queues[place - 1], body)
            for number, place, body in rows
            if place and body is not None
        ]

    def paused_in(self, request: Request, reply: Any) -> list[str]:
        """Returns the names of the queues that a reply to ``fetch_command`` says are paused."""
        rows = zip(*(iter(reply),) * 2, strict=False)
        return [request.queues[place - 1 - len(request.in_flight)] for place, body in rows if body is None]

    def again_s(self, reply: Any) -> float | None:
        """Returns in how many s to ask again, as a reply to ``fetch_command`` says.

        Returns:
            Infinity for as soon as a process of the consumer is free; None for not before something happens.
        """
        if len(reply) < 2 or reply[-2] != 0:
            return None
        return float(reply[-1]) / 1000 if reply[-1] else inf

    def may_have_more(self, found: Sequence[Fetched], most: int) -> bool:
        """Whether a request for up to ``most`` messages has left any: it ends with ``most``, or with many bytes."""
        return len(found) == most or sum(len(each.body) for each in found) >= PAGE_BYTES

    def ack(self, tags: Sequence[str], queue: str, going_on: int = 0) -> list[str]:
        """Removes messages that are held; a round trip for each 200.

        Args:
            tags: Their delivery tags.
            queue: Name of their queue, or of another one of its slot group.
            going_on: How many of the tags, the first ones, keep their places, because their tasks go on.

        Returns:
            The tags that were held no more, and had no place.
        """
        held, missing = self._held(queue), list[str]()
        for number, page in enumerate(pages(tags, PAGE)):
            missing += self._client.run(ack(held=held, going_on=max(going_on - number * PAGE, 0), tags=page))
        return missing

    def ack_command(self, tags: Sequence[str], queue: str, going_on: int = 0, *, by_text: bool = False) -> Command:
        """Returns the command of ``ack`` for at most a few hundred tags; ``missing`` reads its reply."""
        return self._client.command(ack(held=self._held(queue), going_on=going_on, tags=tags), by_text=by_text)

    def missing(self, reply: Any) -> list[str]:
        """Returns what a reply to ``ack_command`` says: the tags that were held no more."""
        return ack.read(reply)

    def requeue(
        self,
        messages: Iterable[Requeued],
        place: Literal["next", "last"],
        *,
        redelivers: bool = False,
        fetched_from: str | None = None,
    ) -> list[str]:
        """Puts messages that are held back into their queues; one round trip.

        In a cluster, a message goes to another queue than the one it was fetched from in two steps: if the caller
        is cut off in between, it is in both.

        Args:
            messages: The messages. The last of them is consumed first, if they go to the next place.
            place: ``next`` to be consumed next, ``last`` to be consumed after all others.
            redelivers: Whether they count as redelivered: they were delivered before, and are going to be again.
            fetched_from: Name of the queue from which all of them were fetched; by default each from its own.

        Returns:
            The tags that were held no more; these messages stay where they are.
        """
        missing, errors = self.requeue_each(messages, place, redelivers=redelivers, fetched_from=fetched_from)
        checked(errors.values())
        return missing

    def requeue_each(
        self,
        messages: Iterable[Requeued],
        place: Literal["next", "last"],
        *,
        redelivers: bool = False,
        fetched_from: str | None = None,
    ) -> tuple[list[str], dict[str, Exception]]:
        """Does so where an error of one queue keeps nothing from going back to others. Returns also errors, by tag."""
        group, by_queue = self._keys.slot_group, dict[str, list[Requeued]]()
        for row in messages:
            by_queue.setdefault(row.queue, []).append(row)
        sent, outcomes = list[list[Requeued]](), list[tuple[list[Requeued], Any]]()
        for queue, rows in by_queue.items():
            held_in = queue if fetched_from is None else fetched_from
            if group(held_in) == group(queue):
                sent += pages(rows, PUT_BACK, PAGE_BYTES, lambda row: len(row.body))
            else:
                outcomes.append((rows, self._moved(rows, place, held_in)))
        calls = [self._requeue_call(page, place, redelivers=redelivers) for page in sent]
        outcomes += zip(sent, self._client.run_each(calls)[0] if calls else (), strict=True)
        errors = {row.tag: found for rows, found in outcomes if isinstance(found, Exception) for row in rows}
        check_reached(errors.values())
        return [tag for _, found in outcomes if not isinstance(found, Exception) for tag in found], errors

    def ready(self, queues: Sequence[str]) -> list[int]:
        """Counts the messages that wait for a consumer, in all lists of each queue and apart from them; one round trip.

        A queue with another key in the place of a list counts as one message, so that its ``fetch`` says so.
        """
        commands = [self._sizes(queue) for queue in queues]
        replies = iter(self._client.replies([command for of_queue in commands for command in of_queue]))
        counts = [[next(replies) for _ in of_queue] for of_queue in commands]
        return [sum(count if isinstance(count, int) else _count_of(count) for count in found) for found in counts]

    def size(self, queue: str) -> int:
        """Counts the messages of a queue as ``ready`` does.

        Raises:
            redis.exceptions.ResponseError: Another key is in the place of a list.
        """
        return sum(self._client.send(self._sizes(queue)))

    def available(self, queues: Sequence[str]) -> list[int]:
        """Counts the messages that a consumer would get: ``ready`` without ``limited``, and 0 for a paused queue."""
        paused = self.paused() if queues else {}
        counts = zip(queues, self.ready(queues), self.limited(queues), strict=True)
        return [0 if queue in paused else max(count - limited, 0) for queue, count, limited in counts]

    def limited(self, queues: Sequence[str]) -> list[int]:
        """Counts the messages of each queue that may not go now, such as because of a limit; one round trip."""
        commands: list[Command] = []
        for queue in queues:
            commands += [("ZCARD", self._keys.parked(queue)), ("HGET", self._keys.parked_keys(queue), PARKED)]
        replies = iter(self._client.replies(commands))
        found = []
        for parked, noted in zip(replies, replies, strict=True):
            may_go = float(as_text(noted).split()[2]) if isinstance(noted, bytes | str) else 0.0
            found.append(max(parked - int(may_go), 0) if isinstance(parked, int) else 0)
        return found

    def _sizes(self, queue: str) -> list[Command]:
        return [*(("LLEN", key) for key in self._lists(queue)), ("ZCARD", self._keys.parked(queue))]

    def pause(self, queue: str) -> bool:
        """Lets our consumers fetch nothing more from a queue, until ``resume``; two round trips, in a cluster three.

        What they have in hand goes on, and what comes due still goes to the queue.

        Returns:
            Whether it was not paused before.
        """
        now_ms = round(time_ms(self._client.redis.time()))
        keys = dict.fromkeys((self._keys.paused(), self._keys.paused(queue)))
        return bool([self._client.ask("HSETNX", key, json.dumps(queue), now_ms) for key in keys][-1])

    def resume(self, queue: str) -> bool:
        """Lets consumers fetch from a paused queue again. Returns whether it was paused."""
        keys = dict.fromkeys((self._keys.paused(queue), self._keys.paused()))
        return bool(sum(self._client.ask("HDEL", key, json.dumps(queue)) for key in keys))

    def paused(self) -> dict[str, float]:
        """Returns the paused queues, with the time since when each is, ms since the epoch; one round trip."""
        found = self._client.ask("HGETALL", self._keys.paused())
        return {json.loads(as_text(name)): float(at_ms) for name, at_ms in sorted(found.items())}

    def held(self, tags: Sequence[str], queue: str) -> list[str]:
        """Returns those of some hundred delivery tags whose messages are still held; one round trip.

        Args:
            tags: The delivery tags.
            queue: As of ``ack``.
        """
        scores = self._client.ask("ZMSCORE", self._held(queue).unacked_index, *tags)
        return [tag for tag, score in zip(tags, scores, strict=True) if score is not None]

    def recover(self, request: Request) -> list[str]:
        """Puts back what Redis has fetched for a request whose reply was lost.

        Args:
            request: The request. None of its messages is known to its sender.

        Returns:
            The tags of the messages that went back to their queues.
        """
        tags = [f"{request.consumer}.{number}" for number in range(request.first, request.first + request.most)]
        return self.put_back(tags, request.queues[0])

    def put_back(self, tags: Sequence[str], queue: str) -> list[str]:
        """Puts some hundred messages back as Redis has them, to be consumed next; two round trips.

        Args:
            tags: Their delivery tags, in the order in which they were fetched.
            queue: As of ``ack``.

        Returns:
            The tags of the messages that went back to their queues.
        """
        notes = self._client.ask("HMGET", self._held(queue).unacked, *tags)
        rows = []
        for tag, noted in reversed([*zip(tags, notes, strict=True)]):
            note = None if noted is None else read_note(as_bytes(noted))
            if note is not None:
                rows.append(Requeued(tag, note.routing_key, note.priority, note.raw))
        missing = self.requeue(rows, "next")
        return [row.tag for row in rows if row.tag not in missing]

    def withdraw(self, client_ids: Iterable[int], in_flight: Sequence[InFlight]) -> None:
        """Ends waits of a consumer, and puts what has come to its in-flight lists back; one round trip.

        Args:
            client_ids: Numbers of the connections that wait.
            in_flight: The in-flight lists, of queues of one slot group.
        """
        request = Request(in_flight=in_flight)
        commands: list[Command] = [("CLIENT", "UNBLOCK", client_id) for client_id in client_ids]
        commands.append(self.fetch_command(request, by_text=True))
        # In a cluster, all of these go to the node of the lists.
        node = self._client.client_at(self.in_flight_keys(in_flight[0])[1])
        checked(RedisCommands(node).replies(commands))

    def return_in_flight(self, queues: Mapping[str, Sequence[str]]) -> dict[str, Exception]:
        """Puts back what is in flight to consumers that do not wait; one round trip.

        Args:
            queues: Names of queues of each consumer, all of one slot group.

        Returns:
            Errors, by consumer; those of others do not matter to it.
        """
        names, calls = [], []
        for consumer, of_consumer in queues.items():
            of_lists = [InFlight(queue, step, consumer) for queue in of_consumer for step in range(self.steps(queue))]
            for some in pages(of_lists, PAGE):
                names.append(consumer)
                calls.append(self._fetch_call(Request(in_flight=some)))
        replies = self._client.run_each(calls)[0] if calls else []
        check_reached(replies)
        return {name: reply for name, reply in zip(names, replies, strict=True) if isinstance(reply, Exception)}

    def in_flight_keys(self, at: InFlight) -> tuple[str, str]:
        """Returns the keys of the list from which an in-flight list gets its message, and of the in-flight list."""
        return self._lists(at.queue)[at.step], self._keys.in_flight(*at)

    def step_of(self, priority: int) -> int:
        """Returns the number of the list, in each queue, of messages of a priority from 0 to 9."""
        return self._client.list_of_priority[priority]

    def steps(self, queue: str) -> int:
        """Returns the number of lists that a queue has."""
        return len(self._lists(queue))

    def _requeue_call(self, messages: Sequence[Requeued], place: str, *, redelivers: bool) -> Call[list[str]]:
        lists, rows = dict[str, int](), []
        for message in messages:
            ready = self._lists(message.queue)[self._client.list_of_priority[message.priority]]
            counts = self._keys.counts(message.queue) if redelivers else ""
            rows.append((message.tag, lists.setdefault(ready, len(lists)), message.body, counts))
        held = self._held(messages[0].queue)
        return requeue(held=held, ready=lists, place=place, rows=rows)

    def _moved(self, messages: Sequence[Requeued], place: str, fetched_from: str) -> list[str] | ResponseError:
        """Puts messages into a queue whose keys are elsewhere: first a copy is there, and then the original goes."""
        push = "RPUSH" if place == "next" else "LPUSH"
        tags = [message.tag for message in messages]
        try:
            held = set(self.held(tags, fetched_from))
            for message in messages:
                if message.tag in held:
                    ready = self._lists(message.queue)[self._client.list_of_priority[message.priority]]
                    self._client.ask(push, ready, message.body)
                    self.ack([message.tag], fetched_from)
        except ResponseError as error:
            return error
        return [tag for tag in tags if tag not in held]

    def _group_of(self, request: Request) -> str:
        """Returns the slot group of a request's queues, and checks that they have one in common."""
        groups = set(map(self._keys.slot_group, (*(at.queue for at in request.in_flight), *request.queues)))
        if len(groups) > 1:
            raise ValueError(f"in Redis Cluster, one request cannot fetch from {len(groups)} queues")
        return groups.pop()

    def _fetched(self, request: Request, number: int, queue: str, body: bytes) -> Fetched:
        tag = "" if queue in request.unnoted else f"{request.consumer}.{number}"
        return Fetched(tag, queue, body)

    def _fetch_call(self, request: Request) -> Call[Any]:
        noted = [*(at.queue for at in request.in_flight), *request.queues]
        for queue in request.queues:
            self._keys.check_queue(queue)
        group = self._group_of(request)
        in_flight = [key for at in request.in_flight for key in reversed(self.in_flight_keys(at))]
        of_queues = map(self._lists, request.queues)
        return fetch(
            consumers=self._keys.consumers(group),
            held=self._held(group),
            paused=self._keys.paused(group),
            lists=[*in_flight, *(ready for of_step in zip(*of_queues, strict=True) for ready in of_step)],
            consumer=request.consumer if request.most and not {*noted}.issubset(request.unnoted) else "",
            channel=self._keys.presence(request.consumer),
            first=request.first,
            most=request.most,
            free=request.free,
            max_bytes=PAGE_BYTES,
            flights=len(request.in_flight),
            queues=len(request.queues),
            turns=request.in_turns,
            rows=[
                (("-" if queue in request.unnoted else "") + json.dumps(queue), self._base(queue)) for queue in noted
            ],
        )


def _count_of(error: Exception) -> int:
    """Returns 1 for a key of the wrong type; raises any other error."""
    if not str(error).startswith("WRONGTYPE"):
        raise error
    return 1
