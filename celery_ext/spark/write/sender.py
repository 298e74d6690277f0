"""Sends the messages of one Spark task to Redis in chunks. The next chunk is made while Redis stores the last one."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import sleep

from redis.exceptions import RedisError

from celery_ext.spark.broker import Retry
from celery_ext.spark.errors import StragglerRefused
from celery_ext.spark.job_types import Enqueued, JobRun
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.store import BulkJobs
from celery_ext.spark.write.offers import OfferColumns
from celery_ext.waiting import by_id
from kombu_delayq.errors import StoreUnavailable
from kombu_delayq.message import pages
from kombu_delayq.redis import Command, SendAhead
from kombu_delayq.store import DelayStore, Offer

#: A chunk of a job with ``max_rate`` has the messages of this time at most, in s.
_CHUNK_S = 0.1
#: Longest pause for the rate before the next try, in s: other tasks of the job may have ended meanwhile.
_LONGEST_PAUSE_S = 1.0
#: Fewest messages worth making at once. Below it, making them costs more time than the overlap with Redis saves.
_FEW = 50
#: Why a task may not write, by the word in the reply of Redis.
_REFUSED = {
    "aborted": "has been aborted",
    "superseded": "goes on in a later run",
    "mixed": "has messages that an earlier version was to send at its end; take another job_id",
    "unknown": "is no longer known to Redis",
}
#: How many chunks of messages are made at once: Arrow takes about the same time for a few rows as for many.
_CHUNKS_AHEAD = 8


class JobCommitted(Exception):
    """The job is committed, so that nothing is left to send for it."""


class _Chunk:
    """Messages that go to Redis in one call: at most so many, and about so many bytes."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._parts: list[OfferColumns] = []

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def _bytes(self) -> int:
        return sum(part.size for part in self._parts)

    @property
    def is_full(self) -> bool:
        """Whether it takes no more."""
        return len(self) >= self._most or self._bytes >= self._most_bytes

    def fill(self, offers: OfferColumns) -> OfferColumns:
        """Takes messages until it is full, and returns those that are left."""
        part = offers[: self._most - len(self)]
        count = part.first_with(self._most_bytes - self._bytes)
        self._parts.append(part[:count])
        return offers[count:]

    def take(self) -> OfferColumns | None:
        """Returns all messages, None without any, and begins a new chunk."""
        parts, self._parts = self._parts, []
        return OfferColumns.together(parts) if parts else None


class Sender:
    """Sends messages of one job, each id once. One chunk is on its way while the next is filled.

    When Redis refuses a chunk for now, or its reply is lost, the sender sends the chunk again and waits for the reply.
    The job's guard in Redis knows which ids were sent.

    Args:
        store: Store of the broker.
        job: The run, which has begun.
        options: Sizes of chunks, and how long to wait.

    Attributes:
        enqueued: Number of messages that were sent, or kept out by ``if_waiting``.
        repeated: Number of messages that the job had before.
        cancelled: Number of tasks that were cancelled.
        rows: How many messages to make at once.
    """

    def __init__(self, store: DelayStore, job: JobRun, options: WriteOptions) -> None:
        self.enqueued = self.repeated = self.cancelled = 0
        self._store, self._jobs = store, store.part(BulkJobs)
        self._job = job
        self._most = most = most_in_chunk(options)
        self._retry = Retry(options.write_timeout)
        self._ahead = SendAhead(store.client.connection_pool)
        self._on_way: tuple[str, JobRun, Sequence[Offer]] | None = None
        self.rows = self._most
        self._chunks: defaultdict[tuple[str, JobRun], _Chunk] = defaultdict(lambda: _Chunk(most, options.chunk_bytes))

    def add(self, queue: str, offers: Sequence[Offer], *, dead: bool = False) -> None:
        """Adds messages, and sends the chunks that are full.

        Args:
            queue: Their queue.
            offers: The messages.
            dead: Whether they are dead letters, which are sent whatever waits.

        Raises:
            JobCommitted: The job is committed.
            StragglerRefused: The job is aborted, or a later run has taken it over.
            BrokerUnavailable: The broker takes no messages for longer than ``write_timeout``.
        """
        to = (queue, self._job._replace(if_waiting="") if dead else self._job)
        chunk = self._chunks[to]
        left = offers if isinstance(offers, OfferColumns) else OfferColumns.of_offers(offers)
        while left:
            left = chunk.fill(left)
            if chunk.is_full:
                self.rows = max(len(chunk) * _CHUNKS_AHEAD, min(_FEW, self._most))
                self._flush(*to)

    def flush(self) -> None:
        """Sends the rest, and waits until Redis has everything. Raises the errors of ``add``."""
        for to in list(self._chunks):
            self._flush(*to)
        self._confirm()

    def close(self) -> None:
        """Waits until Redis has run the chunk on its way, so that none arrives after the Spark task has ended."""
        with suppress(RedisError, OSError):
            self._ahead.confirm()

    def cancel(self, queue: str, ids: Sequence[str], promotions: Sequence[str] = ()) -> None:
        """Cancels waiting tasks. Tasks that this job has sent, or would send later, are among them.

        Raises the errors of ``add``.

        Args:
            queue: Any queue. The ids are looked up in all queues.
            ids: Task ids.
            promotions: Names of jobs that may send these ids again.
        """
        self.flush()
        for part in pages(ids, by_id.IDS_A_CALL):
            # The job does not send them later.
            self._until_enqueued(queue, lambda part=part: self._jobs.claim_ids(self._job, part))  # type: ignore[misc]
            self._retry.until_done(lambda part=part: self._jobs.take_back(promotions, part))  # type: ignore[misc]
            self.cancelled += len(self._cancelled(part))

    def _cancelled(self, ids: Sequence[str]) -> set[str]:
        """Cancels tasks, and returns the ids of those whose messages it removed, in all tries together."""
        removed: set[str] = set()

        def cancel() -> None:
            removed.update(result.id for result in by_id.cancel(self._store, ids) if result.messages)

        self._retry.until_done(cancel)
        return removed

    def _flush(self, queue: str, job: JobRun) -> None:
        chunk = self._without_excluded(self._chunks[queue, job].take())
        if not chunk:
            return
        commands: Sequence[Command] = ()
        # With an error no reply comes, and _confirm sends the chunk again.
        with suppress(RedisError, OSError, StoreUnavailable):
            commands = self._jobs.enqueue_commands(queue, job, chunk)
        self._confirm()
        self._on_way = (queue, job, chunk)
        with suppress(RedisError, OSError):
            self._ahead.send(commands)

    def _confirm(self) -> None:
        """Waits until Redis has the chunk that is on its way, if there is one."""
        if self._on_way is None:
            return
        (queue, job, chunk), self._on_way = self._on_way, None
        reply = None
        with suppress(RedisError, OSError):
            replies = self._ahead.confirm()
            reply = self._jobs.enqueued(queue, replies) if replies else None
        reply = self._until_enqueued(queue, lambda: self._jobs.enqueue(queue, job, chunk), reply)
        self.enqueued += reply.fresh
        self.repeated += reply.repeated
        # A cancel that came meanwhile has excluded the id and searched, maybe before the message was there.
        if excluded := self._excluded(chunk):
            self.cancelled += len(self._cancelled(sorted(excluded)))

    def _without_excluded(self, chunk: Sequence[Offer] | None) -> Sequence[Offer] | None:
        """Returns what is left of a chunk without the ids that the job has cancelled, to whichever queue they go."""
        if self._job.cancels:
            self._confirm()  # it may have the only connection
        excluded = self._excluded(chunk or ())
        self.repeated += sum(offer.id in excluded for offer in (chunk or ()) if excluded)
        return [offer for offer in (chunk or ()) if offer.id not in excluded] if excluded else chunk

    def _excluded(self, chunk: Sequence[Offer]) -> set[str]:
        if not chunk or not self._job.cancels:
            return set()
        ids = [str(offer.id) for offer in chunk]
        return self._retry.until_done(lambda: self._jobs.excluded(self._job, ids))

    def _until_enqueued(self, queue: str, call: Callable[[], Enqueued], reply: Enqueued | None = None) -> Enqueued:
        """Calls until Redis has taken something for a queue. reply: That of a first call, if it came."""
        while True:
            if reply is None:
                reply = self._retry.until_done(call, _has_room)
            elif _has_room(reply):
                self._retry.progress()
            if reply.word == "enqueued":
                return reply
            _wait_for(reply, queue, self._job.name, self._retry)
            reply = None


def most_in_chunk(options: WriteOptions) -> int:
    """Returns the most messages in one call that rate and depth of the queue allow."""
    most = options.chunk_size
    if options.max_rate:
        most = min(most, max(1, int(options.max_rate * _CHUNK_S)))
    return min(most, options.max_queue_depth) if options.max_queue_depth else most


def _has_room(reply: Enqueued) -> bool:
    """Whether the queue has room. Every other reply is progress: the job goes on, or has ended."""
    return reply.word != "deep"


def _wait_for(reply: Enqueued, queue: str, job: str, retry: Retry) -> None:
    """Waits for the rate or for room in a queue, as a reply demands; raises what ``add`` does."""
    if reply.word == "wait":
        sleep(min(reply.wait_ms / 1000, _LONGEST_PAUSE_S))
    elif reply.word == "deep":
        retry.wait(f"queue {queue} has {reply.depth:,} messages, and max_queue_depth allows no more")
    elif reply.word == "committed":
        raise JobCommitted(job)
    else:
        raise refused(job, reply.word)


def refused(job: str, word: str) -> StragglerRefused:
    """Returns the error of a task that may not write for a job. word: Why, as in ``Begun`` or ``Enqueued``."""
    return StragglerRefused(f"job {job} {_REFUSED.get(word, word)}; this task writes no more")
