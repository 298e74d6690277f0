"""How the messages of one Spark task go to Redis: in chunks, each while the next is made, as fast as the job may."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from time import sleep

from redis.exceptions import RedisError

from celery_ext.spark.errors import StragglerRefused
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.retry import Retry
from celery_ext.waiting import by_id
from kombu_delayq.connection.ahead import Ahead
from kombu_delayq.message.pages import Page, pages
from kombu_delayq.store import SparkStore
from kombu_delayq.store.bulk_jobs import Enqueued, JobRun
from kombu_delayq.store.types import Offer

#: For how long, in s, the chunks of a job with a rate are made.
_CHUNK_S = 0.1
#: Longest pause for the rate before asking again, in s: other tasks of the job may have ended.
_LONGEST_PAUSE_S = 1.0

#: Making fewer messages at once than this takes longer than waiting for Redis less saves.
_FEW = 50

#: Why a task may not write.
_REFUSED = {
    "aborted": "has been aborted",
    "superseded": "goes on in a later run",
    "mixed": "has begun with another delivery, and is to be run with the same option again",
    "unknown": "is not known to Redis any more",
}


class JobCommitted(Exception):
    """The job has been committed: whoever still writes for it has nothing to do."""


class Sender:
    """Sends messages of one job, each id once. One chunk is on its way while the next is filled.

    A chunk whose reply says anything but that it was sent, or whose reply is lost, is sent again and waited for: the
    guard of the job knows what has been sent.

    Args:
        store: Of the broker.
        job: The run, which has begun.
        options: Sizes of chunks and time to wait.
    """

    def __init__(self, store: SparkStore, job: JobRun, options: WriteOptions) -> None:
        self.enqueued = self.repeated = self.cancelled = 0
        self._store = store
        self._job = job
        self._most = most = most_in_chunk(options)
        self._retry = Retry(options.write_timeout)
        self._ahead = Ahead(store.client.connection_pool)
        self._on_way: tuple[str, Sequence[Offer]] | None = None
        #: So many messages fill a chunk, about.
        self.rows = self._most
        self._chunks: defaultdict[str, Page[Offer]] = defaultdict(lambda: Page(most, options.chunk_bytes))

    def add(self, queue: str, offers: Sequence[Offer]) -> None:
        """Takes messages, and sends the chunks that are full.

        Raises:
            JobCommitted: The job has been committed.
            StragglerRefused: It has been aborted, or a later run has taken it over.
            BrokerUnavailable: It takes no messages for too long.
        """
        chunk = self._chunks[queue]
        for offer in offers:
            if chunk.add(offer, offer.size):
                self.rows = max(len(chunk), min(_FEW, self._most))
                self._flush(queue)

    def flush(self) -> None:
        """Sends what is left, and waits until Redis has all. Raises as ``add``."""
        for queue in list(self._chunks):
            self._flush(queue)
        self._confirm()

    def close(self) -> None:
        """Waits for Redis to run what is on its way, so that nothing comes to it when its task has ended."""
        with suppress(RedisError, OSError):
            self._ahead.confirm()

    def cancel(self, queue: str, ids: Sequence[str]) -> None:
        """Cancels waiting tasks, also those that this job has sent or would send later. Raises as ``add``.

        Args:
            queue: Any queue; the ids are searched in all.
            ids: Task ids.
        """
        self.flush()
        for part in pages(ids, by_id.IDS_A_CALL):
            self._send(queue, [Offer(each, "", 0, "") for each in part])
            self.cancelled += len(self._cancelled(part))

    def _cancelled(self, ids: Sequence[str]) -> set[str]:
        """Returns which ids had messages that it removed, in however many tries."""
        removed: set[str] = set()

        def cancel() -> None:
            removed.update(each.id for each in by_id.cancel(self._store, ids) if each.messages)

        self._retry.until_done(cancel)
        return removed

    def _flush(self, queue: str) -> None:
        chunk = self._chunks[queue].take()
        if not chunk:
            return
        commands = self._store.jobs.enqueue_commands(queue, self._job, chunk)
        self._confirm()
        self._on_way = (queue, chunk)
        with suppress(RedisError, OSError):  # there will be no reply then
            self._ahead.send(commands)

    def _confirm(self) -> None:
        """Waits until Redis has the chunk that is on its way, if one is."""
        if self._on_way is None:
            return
        (queue, chunk), self._on_way = self._on_way, None
        reply = None
        with suppress(RedisError, OSError):
            replies = self._ahead.confirm()
            reply = self._store.jobs.enqueued(replies) if replies else None
        reply = self._send(queue, chunk, reply)
        self.enqueued += reply.fresh
        self.repeated += reply.repeated

    def _send(self, queue: str, chunk: Sequence[Offer], reply: Enqueued | None = None) -> Enqueued:
        """Sends a chunk and waits until Redis has it. reply: to what was sent of it already, if one has come."""
        while True:
            if reply is None:
                reply = self._retry.until_done(lambda: self._store.jobs.enqueue(queue, self._job, chunk), has_room)
            elif has_room(reply):
                self._retry.progress()
            if reply.word == "enqueued":
                return reply
            hold(reply, queue, self._job.name, self._retry)
            reply = None


def most_in_chunk(options: WriteOptions) -> int:
    """Returns how many messages one call may send, so that rate and depth can be kept."""
    most = options.chunk_size
    if options.max_rate:
        most = min(most, max(1, int(options.max_rate * _CHUNK_S)))
    return min(most, options.max_queue_depth) if options.max_queue_depth else most


def has_room(reply: Enqueued) -> bool:
    """Whether the queue was not too deep: each other reply says that the job goes on, or how it ended."""
    return reply.word != "deep"


def hold(reply: Enqueued, queue: str, job: str, retry: Retry) -> None:
    """Waits as a reply wants it.

    Raises:
        JobCommitted: The job has been committed.
        StragglerRefused: It has ended otherwise.
        BrokerUnavailable: Its queue has been full for too long.
    """
    if reply.word == "wait":
        sleep(min(reply.wait_ms / 1000, _LONGEST_PAUSE_S))
    elif reply.word == "deep":
        retry.wait(f"queue {queue} has {reply.depth:,} messages, and max_queue_depth allows no more")
    elif reply.word == "committed":
        raise JobCommitted(job)
    else:
        raise refused(job, reply.word)


def refused(job: str, word: str) -> StragglerRefused:
    """Returns what a task raises that may not write for a job. word: why, as of ``Begun`` or ``Enqueued``."""
    return StragglerRefused(f"job {job} {_REFUSED.get(word, word)}; this task writes no more")
