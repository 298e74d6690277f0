"""What the far tier asks of bulk jobs: where their late rows are, and which of their ids it has cancelled."""

from collections.abc import Sequence

from kombu_delayq.connection.text import as_text
from kombu_delayq.store.bulk_jobs.known import KnownJobs
from kombu_delayq.store.bulk_jobs.types import JobRun


class FarJobs(KnownJobs):
    """Bulk jobs whose late rows wait in files."""

    def pin_tier(self, job: JobRun, tier: str) -> bool:
        """Notes where the far rows of a job go, before it sends anything. Returns whether all its runs do the same.

        Args:
            job: The run, which has begun.
            tier: The tier, and from when on rows go there.
        """
        key = self._keys.job(job.name)
        with self._client.redis.pipeline() as pipe:
            pipe.hsetnx(key, "far", tier)
            pipe.hmget(key, "far", "enqueued")
            is_new, (found, enqueued) = pipe.execute()
        if self._parts is not None and is_new:
            enqueued = self._parts.sent(job.name)
        return bool(as_text(found) == tier and not (is_new and int(enqueued or 0)))

    def choose(self, job: JobRun, fresh_ms: float) -> str | int:
        """Decides which run of a job has its files in the far tier, after this run has written all of its own.

        Returns:
            Number of the run that is chosen, by an earlier call if that is less than ``fresh_ms`` ago; or, with nothing
            changed, why this run may not write, as of ``Begun``.
        """
        word, *chosen = self._client.run("choose", [self._keys.job(job.name)], [job.run, fresh_ms, job.ttl_ms])
        return int(chosen[0]) if chosen else as_text(word)

    def withhold(self, name: str, ttl_ms: int, rows: Sequence[tuple[str, str]]) -> list[bool] | None:
        """Claims ids, a few hundred at a time, so that no run of a job sends them, not even one that is to begin.

        Args:
            name: Name of the job.
            ttl_ms: Redis remembers the ids for so long at least, in ms.
            rows: Queue and id of each row.

        Returns:
            For each id, whether it was free until now; None, with nothing changed, when the job is committed.
        """
        if self._parts is not None and self._parts.is_committed(name):
            return None
        free: dict[tuple[str, str], bool] = {}
        for share, ids in self._by_share(rows).items():
            job, guard, _ = self._part(name, share)
            word, *found = self._client.run("withhold", [job, guard], [ttl_ms, *ids])
            if as_text(word) == "committed":
                if self._parts is None:
                    return None
                found = [0] * len(ids)
            free |= {(share, one): bool(is_free) for one, is_free in zip(ids, found, strict=True)}
        return [free[self._keys.share(row[0]), row[1]] for row in rows]
