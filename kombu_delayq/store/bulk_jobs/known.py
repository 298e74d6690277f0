"""What Redis remembers of bulk jobs."""

from collections.abc import Sequence

from kombu_delayq.connection.text import as_text
from kombu_delayq.store.bulk_jobs.parts import JobParts
from kombu_delayq.store.bulk_jobs.types import ENTRIES, Job
from kombu_delayq.store.client import StoreClient, StorePart


class KnownJobs(StorePart):
    """Looks at bulk jobs.

    Args:
        client: The client of the store.
    """

    def __init__(self, client: StoreClient) -> None:
        super().__init__(client)
        self._parts = JobParts(client) if client.keys.slots else None

    def find(self, name: str) -> Job | None:
        """Returns what Redis remembers of a job, or None."""
        with self._client.redis.pipeline(transaction=False) as pipe:
            pipe.hgetall(self._keys.job(name))
            pipe.llen(self._keys.staged(name))
            found, staged = pipe.execute()
        fields = {as_text(field): as_text(value) for field, value in found.items()}
        if not fields:
            return None
        run, enqueued, waiting = int(fields["run"]), int(fields.get("enqueued", 0)), int(staged) // ENTRIES
        if self._parts is not None:
            enqueued, waiting = self._parts.sent(name), sum(self._parts.staged_in(name).values())
        if fields["state"] == "publishing" and not waiting:  # who sent the last message of a part did not note it yet
            fields["state"] = "committed"
        base_ms, tier = float(fields["base"]), fields.get("far")
        return Job(name, fields["state"], run, base_ms, enqueued, waiting, tier)

    def of_stream(self, stream: str) -> str | None:
        """Returns the name of the job that a stream last worked on, or None."""
        name = self._client.redis.get(self._keys.stream(stream))
        return None if name is None else as_text(name)

    def sent(self, name: str, rows: Sequence[tuple[str, str]]) -> list[bool]:
        """Returns for each row whether an open job has sent or claimed it; False for all once the job is committed.

        Args:
            name: Name of the job.
            rows: Queue and id of each row.
        """
        known: dict[tuple[str, str], bool] = {}
        for queue, ids in self._by_part(rows).items():
            found = self._client.redis.smismember(self._part(name, queue)[1], ids)
            known |= {(queue, one): bool(is_known) for one, is_known in zip(ids, found, strict=True)}
        return [known[self._keys.share(queue), one] for queue, one in rows]

    def _by_part(self, rows: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
        """Returns the ids of rows by the share of their queues."""
        found: dict[str, list[str]] = {}
        for queue, one in rows:
            found.setdefault(self._keys.share(queue), []).append(one)
        return found

    def _part(self, name: str, queue: str) -> list[str]:
        """Returns the keys of a job: job, guard and staged messages; where it has parts, those for a queue."""
        return self._of_job(name) if self._parts is None else self._parts.keys_of(name, queue)

    def _of_job(self, name: str) -> list[str]:
        return [self._keys.job(name), self._keys.guard(name), self._keys.staged(name)]
