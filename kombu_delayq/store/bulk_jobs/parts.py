"""Bulk jobs where Redis has hash slots: each has a part in the slot of each queue that it writes to."""

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

from kombu_delayq.connection.replies import checked
from kombu_delayq.connection.text import as_bytes, as_text
from kombu_delayq.store.bulk_jobs.remembered import Part, fields_of
from kombu_delayq.store.bulk_jobs.types import ENTRIES, JobRun
from kombu_delayq.store.client import StoreClient, StorePart

#: Parts are kept for so much longer than the job as a whole, which therefore never outlives what they have sent. In
#: this share of ``ttl_ms`` their time begins anew.
SHARE = 1 / 4
#: States of a job that has sent everything, or is about to.
_COMMITTED = ("committed", "publishing")


class JobParts(StorePart):
    """Begins and ends the parts of jobs, behind the job as a whole.

    A part is a job of its own in the slot of its queue: state, run, guard, staged messages. The script that writes
    there asks it alone. The names of the queues are noted before their parts begin, and read after the job as a whole
    has changed. So a run that begins a part of a job that has ended, or has a later run, learns that, or is seen.

    Args:
        client: The client of the store.
    """

    def __init__(self, client: StoreClient) -> None:
        super().__init__(client)
        #: By job and run: when all its parts began last, in s of ``monotonic``.
        self._begun: dict[tuple[str, int], float] = {}
        #: By job, run and queue: when the job began whose part this store has begun, in ms since the epoch.
        self._joined: dict[tuple[str, int, str], float] = {}

    def queues(self, name: str) -> list[str]:
        """Returns the names of the queues in whose slots a job has a part."""
        return sorted(map(as_text, self._client.ask("SMEMBERS", self._keys.parts(name))))

    def begin(self, job: JobRun, base_ms: float) -> None:
        """Lets a run that has begun write to all parts of its job, and earlier runs to none."""
        # Redis may have lost the parts, and the count of the runs, so that a run has the number of one before.
        self._joined = {part: began for part, began in self._joined.items() if part[0] != job.name}
        ready, queues = self._client.send(
            [("GET", self._keys.begun(job.name)), ("SMEMBERS", self._keys.parts(job.name))]
        )
        if ready is None or int(ready) != job.run:
            names = [as_text(queue) for queue in queues]
            for queue, word in zip(names, self._begin_parts(job, base_ms, names), strict=True):
                if word == "mixed":  # it was aborted as a whole, by somebody who died before he came to this part
                    self._finish_parts(job.name, [queue], 0, "aborted", job.ttl_ms, base_ms)
                    self._begin_parts(job, base_ms, [queue])
            self._client.send(
                [
                    ("PEXPIRE", self._keys.parts(job.name), longer(job.ttl_ms)),
                    ("SET", self._keys.begun(job.name), job.run, "PX", max(int(job.ttl_ms * SHARE), 1)),
                ]
            )
        self._begun[job.name, job.run] = monotonic()

    def is_due(self, job: JobRun) -> bool:
        """Whether a run that began in this process should begin again, so that Redis keeps the job for longer."""
        begun = self._begun.get((job.name, job.run))
        return begun is not None and monotonic() - begun > job.ttl_ms / 1000 * SHARE

    def look(self, job: JobRun) -> str:
        """Returns ``open``, or why a run may not write to the job as a whole."""
        state, run = self._fields(job.name, "state", "run")
        return _fence(state, run, job)

    def join(self, queue: str, job: JobRun) -> str:
        """Begins the part of a queue, once a store. Returns ``open``, or why the run may not write."""
        if (job.name, job.run, queue) in self._joined:
            return "open"
        _, _, (state, run, base) = self._client.send(
            [
                ("SADD", self._keys.parts(job.name), as_bytes(queue)),
                ("PEXPIRE", self._keys.parts(job.name), longer(job.ttl_ms)),
                ("HMGET", self._keys.job(job.name), "state", "run", "base"),
            ]
        )
        word = _fence(state, run, job)
        if word == "open":
            [word] = self._begin_parts(job, float(base), [queue])
        if word == "open":
            self._joined[job.name, job.run, queue] = float(base)
        return word

    def rejoin(self, queue: str, job: JobRun) -> str:
        """Begins the part of a queue that does not know the run any more, if Redis has forgotten the job meanwhile.

        Returns:
            ``open`` if another process has begun the job anew since; ``unknown`` if the part alone has lost its data;
            or why the run may not write.
        """
        state, run, base = self._fields(job.name, "state", "run", "base")
        word = _fence(state, run, job)
        if word != "open":
            return word
        if base is None or self._joined.get((job.name, job.run, queue)) == float(base):
            return "unknown"
        self._joined.pop((job.name, job.run, queue), None)
        return self.join(queue, job)

    def end(self, job: JobRun, state: str) -> str:
        """Ends the parts of a job that has ended as a whole, unless that is done. Whoever meets such a job may do it.

        Args:
            job: A run of the job.
            state: State of the job as a whole.

        Returns:
            The state of the job; ``publishing`` if a part has staged messages that are to be sent now.
        """
        key = self._keys.job(job.name)
        (run, closed, base), queues = self._client.send(
            [("HMGET", key, "run", "closed", "base"), ("SMEMBERS", self._keys.parts(job.name))]
        )
        if run is None or closed == run:
            return state
        ended = "aborted" if state == "aborted" else "committed"
        names = [as_text(queue) for queue in queues]
        words = self._finish_parts(job.name, names, int(run), ended, job.ttl_ms, float(base))
        if state == "committed" and "publishing" in words:
            state = "publishing"
        self.close(job._replace(run=int(run)), state)
        self._client.send([("PEXPIRE", self._keys.parts(job.name), longer(job.ttl_ms))])
        return state

    def close(self, job: JobRun, state: str) -> str:
        """Notes in a job as a whole what its parts have come to, as ``BulkJobs.close``."""
        return as_text(self._client.run("close", [self._keys.job(job.name)], [job.run, state, job.ttl_ms]))

    def complete(self, job: JobRun) -> None:
        """Ends the parts of a job whose end was cut short, before another run begins."""
        state, run, closed = self._fields(job.name, "state", "run", "closed")
        if state is not None and as_text(state) != "open" and closed != run:
            self.end(job, as_text(state))

    def is_committed(self, name: str) -> bool:
        """Whether a job as a whole has sent everything, or is about to."""
        [state] = self._fields(name, "state")
        return state is not None and as_text(state) in _COMMITTED

    def staged_in(self, name: str) -> dict[str, int]:
        """Returns the queues for which messages are staged, with their numbers."""
        queues = self.queues(name)
        keys = [self._keys.staged(name, self._keys.share(queue)) for queue in queues]
        lengths = self._client.send([("LLEN", key) for key in keys]) if keys else []
        return {queue: length // ENTRIES for queue, length in zip(queues, lengths, strict=True) if length}

    def look_at(self, queues: Mapping[str, Sequence[str]]) -> dict[str, list[Part]]:
        """Returns what is in the slots of queues, for each job by name; one round trip. queues: By name of the job."""
        pairs = [(name, queue) for name, names in queues.items() for queue in names]
        keys = [self.keys_of(*pair) for pair in pairs]
        commands = [command for job, _, staged in keys for command in (("HGETALL", job), ("LLEN", staged))]
        replies = self._client.send(commands) if commands else []
        found: dict[str, list[Part]] = {name: [] for name in queues}
        for (name, queue), fields, length in zip(pairs, replies[::2], replies[1::2], strict=True):
            found[name].append(Part(queue, fields_of(fields), int(length) // ENTRIES))
        return found

    def drop(self, name: str) -> bool:
        """Removes the parts of a job that was dropped as a whole. Returns whether there were any."""
        calls = [(self.keys_of(name, queue), ["1"]) for queue in self.queues(name)]
        words = [as_text(word) for word in self._each("drop", calls)]
        self._client.send([("UNLINK", self._keys.parts(name)), ("UNLINK", self._keys.begun(name))])
        return "dropped" in words

    def sent(self, name: str) -> int:
        """Returns the number of messages that all parts have sent or staged."""
        keys = [self._keys.job(name, self._keys.share(queue)) for queue in self.queues(name)]
        found = self._client.send([("HGET", key, "enqueued") for key in keys]) if keys else []
        return sum(int(one or 0) for one in found)

    def end_publishing(self, job: JobRun) -> None:
        """Notes that no message is staged any more."""
        state, run = self._fields(job.name, "state", "run")
        if state is not None and run is not None and as_text(state) == "publishing":
            self.close(job._replace(run=int(run)), "committed")

    def keys_of(self, name: str, queue: str) -> list[str]:
        """Returns the keys of a part: job, guard and staged messages."""
        share = self._keys.share(queue)
        return [of(name, share) for of in (self._keys.job, self._keys.guard, self._keys.staged)]

    def _fields(self, name: str, *fields: str) -> list[bytes | None]:
        """Returns fields of a job as a whole."""
        [found] = self._client.send([("HMGET", self._keys.job(name), *fields)])
        return list(found)

    def _begin_parts(self, job: JobRun, base_ms: float, queues: Sequence[str]) -> list[str]:
        args = [job.run, longer(job.ttl_ms), "", int(job.staged), f"{base_ms:.17g}"]
        calls = [
            ([*self.keys_of(job.name, queue), self._keys.stream(job.name, self._keys.share(queue))], args)
            for queue in queues
        ]
        return [as_text(word) for word, _ in self._each("begin", calls)]

    def _finish_parts(
        self, name: str, queues: Sequence[str], run: int, word: str, ttl_ms: int, base_ms: float
    ) -> list[str]:
        args = [run, word, longer(ttl_ms), f"{base_ms:.17g}"]
        return [as_text(one) for one in self._each("finish", [(self.keys_of(name, queue), args) for queue in queues])]

    def _each(self, operation: str, calls: Sequence[tuple[list[str], list[Any]]]) -> list[Any]:
        if not calls:
            return []
        return checked(self._client.run_each(operation, [(*call, self._client.layout) for call in calls])[0])


def longer(ttl_ms: int) -> int:
    """Returns for how long Redis keeps the parts of a job that is kept for ``ttl_ms``, in ms."""
    return round(ttl_ms * (1 + SHARE))


def _fence(state: bytes | None, latest: bytes | None, job: JobRun) -> str:
    """Returns ``open``, or why a run may not write, as the scripts do."""
    if state is None or latest is None:
        return "unknown"
    word = as_text(state)
    if word in _COMMITTED:
        return "committed"
    if int(latest) == job.run:
        return word
    return "superseded" if job.run < int(latest) else "unknown"
