"""Bulk jobs whose messages wait in Redis or in the journal."""

from collections.abc import Sequence
from functools import partial

from celery_ext.journal.store.tiers import Tiers
from kombu_delayq.connection.text import Command, as_bytes, as_text
from kombu_delayq.store.client import StoreClient
from kombu_delayq.store.far_jobs import FarJobs
from kombu_delayq.store.job_types import ENTRIES, PUBLISH_COUNT, Enqueued, JobRun, Staged
from kombu_delayq.store.registry import QueueRegistry
from kombu_delayq.store.types import Offer


class JournaledJobs(FarJobs):
    """Sends the messages of bulk jobs to where they belong, each id once.

    Rows come first, under a key made from job and id, so that they come once however often a task runs. Then the script
    that sends the other messages claims their ids in the guard.

    Args:
        client: As of ``BulkJobs``.
        registry: As of ``BulkJobs``.
        tiers: Decides where a message waits.
    """

    def __init__(self, client: StoreClient, registry: QueueRegistry, tiers: Tiers) -> None:
        super().__init__(client, registry)
        self._tiers = tiers

    def enqueue(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> Enqueued:
        """Sends messages to one queue, each to where it belongs; see ``BulkJobs.enqueue``."""
        return super().enqueue(queue, job, self._for_redis(queue, job, offers))

    def enqueue_commands(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> list[Command]:
        """Writes rows, and returns the commands for Redis; see ``BulkJobs.enqueue_commands``."""
        return super().enqueue_commands(queue, job, self._for_redis(queue, job, offers))

    def _for_redis(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> Sequence[Offer]:
        """Writes the rows of messages that the job has not sent. Returns what Redis gets."""
        if job.staged or not self._may_write(job):
            return offers
        cutoff_ms = self._tiers.cutoff_ms()
        _, far = self._tiers.split([one for one in offers if one.body], cutoff_ms)
        kept = [one for one in offers if one.body and one.due] if self._tiers.takes_all else far
        if not kept:
            return offers
        known = self._client.ask("SMISMEMBER", self._part(job.name, queue)[1], *(one.id for one in kept))
        first: dict[str, Offer] = {}  # a job sends the first message of an id
        for one in offers:
            first.setdefault(as_text(one.id), one)
        new = [one for one, is_known in zip(kept, known, strict=True) if not is_known and first[as_text(one.id)] is one]
        self._tiers.place(queue, new, key_of=partial(_key, job.name), cutoff_ms=cutoff_ms)
        elsewhere = set(map(id, far))
        return [one._replace(body="") if id(one) in elsewhere else one for one in offers]

    def _publish_to(self, queue: str, job: JobRun, forms: Sequence[str], read: Staged | None = None) -> Enqueued:
        found = self.find(job.name)
        if found is None or found.state != "publishing":
            return super()._publish_to(queue, job, forms)
        offers, length = self._staged(queue, job)
        if not offers:
            return super()._publish_to(queue, job, forms)
        placed = self._tiers.place(queue, offers, key_of=partial(_key, job.name))
        return super()._publish_to(queue, job, forms, Staged(len(offers), length, placed.cutoff_ms))

    def _staged(self, queue: str, job: JobRun) -> tuple[list[Offer], int]:
        """Reads the first staged messages that are for a queue. Returns them, and how many are staged."""
        key = self._part(job.name, queue)[2]
        with self._client.redis.pipeline(transaction=True) as pipe:
            pipe.lrange(key, 0, PUBLISH_COUNT * ENTRIES - 1)
            pipe.llen(key)
            flat, length = pipe.execute()
        offers: list[Offer] = []
        for to, identity, due, priority, body in zip(*(iter(flat),) * ENTRIES, strict=True):
            if as_text(to) != queue:
                break
            offers.append(Offer(as_text(identity), as_text(due), int(priority), as_bytes(body)))
        return offers, int(length) // ENTRIES

    def _may_write(self, job: JobRun) -> bool:
        """Whether this run may write, so that the rows of a straggler do not stay behind."""
        state, run = self._client.ask("HMGET", self._keys.job(job.name), "state", "run")
        return state is not None and as_text(state) == "open" and int(run) == job.run


def _key(job: str, offer: Offer) -> bytes:
    return b"%b\0%b" % (as_bytes(job), as_bytes(offer.id))
