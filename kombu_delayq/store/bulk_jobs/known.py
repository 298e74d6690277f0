"""What Redis remembers of bulk jobs."""

from collections.abc import Iterator, Sequence

from kombu_delayq.connection.nodes import scan_pages
from kombu_delayq.connection.text import Command, as_text
from kombu_delayq.store.bulk_jobs.parts import JobParts
from kombu_delayq.store.bulk_jobs.remembered import fields_of, job_of
from kombu_delayq.store.bulk_jobs.types import ENTRIES, Job, JobRun
from kombu_delayq.store.client import StoreClient, StorePart

#: About how many keys one call of SCAN looks at.
SCAN_COUNT = 1000


class KnownJobs(StorePart):
    """Looks at bulk jobs, and forgets them.

    Args:
        client: The client of the store.
    """

    def __init__(self, client: StoreClient) -> None:
        super().__init__(client)
        self._parts = JobParts(client) if client.keys.slots else None

    def find(self, name: str) -> Job | None:
        """Returns what Redis remembers of a job, or None."""
        return next(iter(self.find_all([name])), None)

    def find_all(self, names: Sequence[str]) -> list[Job]:
        """Returns what Redis remembers of jobs, two round trips at most; those that it does not know are left out."""
        replies = iter(self._client.send(command for name in names for command in self._whole(name)))
        wholes: dict[str, tuple[dict[str, str], int]] = {}
        queues: dict[str, list[str]] = {}
        for name in names:
            fields, staged = fields_of(next(replies)), int(next(replies)) // ENTRIES
            of_parts = [] if self._parts is None else sorted(map(as_text, next(replies)))
            if fields:
                wholes[name], queues[name] = (fields, staged), of_parts
        parts = {} if self._parts is None else self._parts.look_at(queues)
        return [job_of(name, *whole, parts.get(name)) for name, whole in wholes.items()]

    def names(self, pattern: str = "") -> Iterator[str]:
        """Yields the names of the jobs that Redis remembers, in no order, while it looks for them.

        Args:
            pattern: Pattern of SCAN for names; empty for all.
        """
        known = set[str]()
        for page in scan_pages(self._client.redis, self._keys.of_jobs(pattern or "*"), SCAN_COUNT):
            for key in page:
                name = self._keys.job_of(as_text(key))
                if name is not None and name not in known:
                    known.add(name)
                    yield name

    def _whole(self, name: str) -> list[Command]:
        """Returns the commands that read a job as a whole, and where it has parts."""
        of_parts: list[Command] = [] if self._parts is None else [("SMEMBERS", self._keys.parts(name))]
        return [("HGETALL", self._keys.job(name)), ("LLEN", self._keys.staged(name)), *of_parts]

    def drop(self, name: str, *, at_any: bool = False) -> str:
        """Removes what Redis remembers of a job, so that the next run of its name sends all rows anew.

        Args:
            name: Name of the job.
            at_any: Whether to remove it before it has ended, too, with the messages that it has staged. Its tasks that
                still write are refused then; Spark's next attempt of each begins the job anew.

        Returns:
            ``dropped``; ``unknown`` if Redis does not know the job; or, with nothing changed, ``open`` or
            ``publishing``, the state of a job that has not ended.
        """
        word = as_text(self._client.run("drop", self._of_job(name), [int(at_any)]))
        if self._parts is not None and word == "publishing" and not self._parts.staged_in(name):
            return self.drop(name, at_any=True)  # who sent the last message did not note it yet
        # Parts stay behind a caller that died after the job as a whole.
        if self._parts is not None and word in ("dropped", "unknown") and self._parts.drop(name):
            word = "dropped"
        return word

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
        return [known[self._keys.share(row[0]), row[1]] for row in rows]

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
            found.setdefault(self._keys.share(queue), []).append(one)
        return found

    def _part(self, name: str, queue: str) -> list[str]:
        """Returns the keys of a job: job, guard and staged messages; where it has parts, those for a queue."""
        return self._of_job(name) if self._parts is None else self._parts.keys_of(name, queue)

    def _of_job(self, name: str) -> list[str]:
        return [self._keys.job(name), self._keys.guard(name), self._keys.staged(name)]
