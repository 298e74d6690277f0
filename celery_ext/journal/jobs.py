"""Bulk jobs whose messages come into Redis, into the journal, or into both."""

from collections.abc import Sequence
from functools import partial

from celery_ext.journal.both import PartOfBoth
from celery_ext.journal.journal import Journal
from celery_ext.journal.placement import Placement
from celery_ext.spark.job_types import Enqueued, JobRun
from celery_ext.spark.keys import JobKeys
from celery_ext.spark.store import BulkJobs
from kombu_delayq.errors import InvalidIfWaiting
from kombu_delayq.redis import Command
from kombu_delayq.store import Offer, StoreClient
from kombu_delayq.text import as_bytes, as_text


class JournaledJobs(PartOfBoth[BulkJobs]):
    """Sends the messages of bulk jobs to where they belong, each id once.

    Rows come first, under a key made from job and message, so that they come once however often a task runs. Then the
    script that sends the other messages claims their ids in the guard.
    """

    def __init__(self, redis: BulkJobs, journal: Journal, client: StoreClient, placement: Placement) -> None:
        super().__init__(redis, journal)
        self._client = client
        self._placement = placement

    def enqueue(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> Enqueued:
        """Sends messages to one queue, each to where it belongs; see ``BulkJobs.enqueue``."""
        return self._redis.enqueue(queue, job, self._for_redis(queue, job, offers))

    def enqueue_commands(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> list[Command]:
        """Writes rows, and returns the commands for Redis; see ``BulkJobs.enqueue_commands``."""
        return self._redis.enqueue_commands(queue, job, self._for_redis(queue, job, offers))

    def _for_redis(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> Sequence[Offer]:
        """Writes the rows of messages that the job has not sent. Returns what Redis gets.

        Raises:
            InvalidIfWaiting: The job asks what waits, which the script that guards its ids sees in Redis alone.
        """
        if job.if_waiting:
            raise InvalidIfWaiting(f"if_waiting={job.if_waiting!r} of a bulk job does not work with a journal")
        if not self._may_write(job):
            return offers
        cutoff_ms, offers = self._placement.cutoff_ms(), list(offers)  # each is one object from here on
        _, far = self._placement.split([one for one in offers if one.body], cutoff_ms)
        kept = [one for one in offers if one.body and one.due] if self._placement.takes_all else far
        if not kept:
            return offers
        known = self._redis.sent(queue, job, kept)
        first: dict[bytes, Offer] = {}  # a job sends the first message of an id
        for one in offers:
            first.setdefault(_key(job, one), one)
        new = [one for one, is_known in zip(kept, known, strict=True) if not is_known and first[_key(job, one)] is one]
        self._placement.place(queue, new, key_of=partial(_key, job), cutoff_ms=cutoff_ms)
        elsewhere = set(map(id, far))
        return [one._replace(body="") if id(one) in elsewhere else one for one in offers]

    def _may_write(self, job: JobRun) -> bool:
        """Whether this run may write, so that the rows of a straggler do not stay behind."""
        state, run = self._client.ask("HMGET", JobKeys(self._client.keys).job(job.name), "state", "run")
        return state is not None and as_text(state) == "open" and int(run) == job.run


def _key(job: JobRun, offer: Offer) -> bytes:
    due = f"\0{offer.due}" if job.dated else ""
    return b"%b\0%b%b" % (as_bytes(job.name), as_bytes(offer.id), as_bytes(due))
