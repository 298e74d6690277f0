"""What Redis remembers of bulk jobs."""

from collections.abc import Sequence

from kombu_delayq.connection.text import as_text
from kombu_delayq.store.bulk_jobs.parts import JobParts
from kombu_delayq.store.bulk_jobs.types import ENTRIES, Job, JobRun
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
        for share, ids in self._by_share(rows).items():
            found = self._client.redis.smismember(self._part(name, share)[1], ids)
            known |= {(share, one): bool(is_known) for one, is_known in zip(ids, found, strict=True)}
        return [known[self._share(*row), row[1]] for row in rows]

    def excluded(self, job: JobRun, ids: Sequence[str]) -> set[str]:
        """Returns, where Redis has hash slots, which ids an open job has excluded.

        Who sends messages asks before and after. On a plain server the script that sends knows it.
        """
        if self._parts is None or not job.cancels:
            return set()
        found = self._client.ask("SMISMEMBER", self._keys.guard(job.name), *ids)
        return {one for one, is_excluded in zip(ids, found, strict=True) if is_excluded}

    def _by_share(self, rows: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
        """Returns the ids of rows by the share of the queues that get them."""
        found: dict[str, list[str]] = {}
        for queue, one in rows:
            found.setdefault(self._share(queue, one), []).append(one)
        return found

    def _share(self, queue: str, one: str) -> str:
        """Returns the share of the queue that gets a message: of one part, if the queue is spread over several."""
        return self._keys.share(self._client.options.part_of(queue, one))

    def _part(self, name: str, queue: str) -> list[str]:
        """Returns the keys of a job: job, guard and staged messages; where it has parts, those for a queue."""
        return self._of_job(name) if self._parts is None else self._parts.keys_of(name, queue)

    def _of_job(self, name: str) -> list[str]:
        return [self._keys.job(name), self._keys.guard(name), self._keys.staged(name)]
