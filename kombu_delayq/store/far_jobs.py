"""What the far tier asks of bulk jobs: where their late rows are, and which of their ids it has cancelled."""

from collections.abc import Sequence

from kombu_delayq.connection.text import as_text
from kombu_delayq.store.job_types import JobRun
from kombu_delayq.store.jobs import COMMITTED, BulkJobs


class FarJobs(BulkJobs):
    """Bulk jobs whose late rows wait in files."""

    def pin_tier(self, job: JobRun, tier: str) -> bool:
        """Notes where the far rows of a job go, before it sends anything. Returns whether all its runs do the same.

        Args:
            job: The run, which has begun.
            tier: The tier, and from when on rows go there.
        """
        is_new = self._client.ask("HSETNX", self._keys.job(job.name), "far", tier)
        found = self.find(job.name)
        return found is not None and found.tier == tier and not (is_new and found.enqueued)

    def choose(self, job: JobRun, fresh_ms: float) -> str | int:
        """Decides which run of a job has its files in the far tier, after this run has written all of its own.

        Returns:
            Number of the run that is chosen, by an earlier call if that is less than ``fresh_ms`` ago; or, with nothing
            changed, why this run may not write, as of ``Begun``.
        """
        word, *chosen = self._client.run("choose", [self._keys.job(job.name)], [job.run, fresh_ms, job.ttl_ms])
        return int(chosen[0]) if chosen else as_text(word)

    def claim_ids(self, name: str, ttl_ms: int, rows: Sequence[tuple[str, str]]) -> list[bool] | None:
        """Claims ids, a few hundred at a time, so that no run of a job sends them, not even one that is to begin.

        Args:
            name: Name of the job.
            ttl_ms: Redis remembers the ids for so long at least, in ms.
            rows: Queue and id of each row.

        Returns:
            For each id, whether it was free until now; None, with nothing changed, when the job is committed.
        """
        [state] = self._fields(name, "state")
        if state is not None and as_text(state) in COMMITTED:
            return None
        free: dict[tuple[str, str], bool] = {}
        for queue, ids in _by_queue(rows).items():
            word, *found = self._client.run("claim_ids", self._part(name, queue)[:2], [ttl_ms, *ids])
            if as_text(word) == "committed":
                found = [0] * len(ids)
            free |= {(queue, one): bool(is_free) for one, is_free in zip(ids, found, strict=True)}
        return [free[row] for row in rows]

    def sent(self, name: str, rows: Sequence[tuple[str, str]]) -> list[bool]:
        """Returns for each row whether an open job has sent or claimed it; False for all once the job is committed.

        Args:
            name: Name of the job.
            rows: Queue and id of each row.
        """
        known: dict[tuple[str, str], bool] = {}
        for queue, ids in _by_queue(rows).items():
            found = self._client.redis.smismember(self._part(name, queue)[1], ids)
            known |= {(queue, one): bool(is_known) for one, is_known in zip(ids, found, strict=True)}
        return [known[row] for row in rows]


def _by_queue(rows: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """Returns the ids of rows by their queues."""
    found: dict[str, list[str]] = {}
    for queue, one in rows:
        found.setdefault(queue, []).append(one)
    return found
