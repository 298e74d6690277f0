"""The store's operations on bulk jobs, which send each id once, however often their tasks run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kombu_delayq.connection.text import Command, as_text
from kombu_delayq.store.client import QueueRegistry, StoreClient, StorePart
from kombu_delayq.store.types import Offer

#: Largest number of staged messages, and about the largest number of bytes, that one call sends.
PUBLISH_COUNT, PUBLISH_BYTES = 200, 300_000
#: Entries of the LIST that one staged message takes.
ENTRIES = 5


class JobRun(NamedTuple):
    """One run of a bulk job, and how it writes.

    Attributes:
        name: Name of the job.
        run: Number of the run; later runs have larger ones.
        ttl_ms: For how long Redis remembers the job, in ms.
        staged: Whether the job's messages stay invisible until the job is committed, and are sent then.
        max_rate: Messages a second for the whole job, 0 for no limit.
        max_depth: Largest number of messages that a queue may hold, delayed ones included, 0 for no limit.
    """

    name: str
    run: int
    ttl_ms: int
    staged: bool = False
    max_rate: float = 0.0
    max_depth: int = 0


class Begun(NamedTuple):
    """Whether a run may write.

    Attributes:
        word: ``open`` if it may. Otherwise ``committed``, ``aborted``, ``superseded`` by a later run, or ``mixed``: an
            earlier run has sent messages and this one would stage them, or the reverse.
        base_ms: When the job began, ms since the epoch; the same for all its runs.
    """

    word: str
    base_ms: float


class Enqueued(NamedTuple):
    """The result of sending messages of a bulk job.

    Attributes:
        word: ``enqueued``. With any other word nothing has changed: ``wait`` (the rate is used up), ``deep`` (the queue
            is full), or the reason why the run may not write: ``committed``, ``aborted``, ``superseded`` or
            ``unknown``.
        fresh: Number of ids that are new in the job.
        repeated: Number of ids that the job had before.
        wait_ms: With ``wait``: how long to wait, in ms.
        depth: With ``deep``: number of messages in the queue.
    """

    word: str
    fresh: int = 0
    repeated: int = 0
    wait_ms: float = 0.0
    depth: int = 0


class Staged(NamedTuple):
    """Staged messages that a caller has read before it sends them.

    Attributes:
        most: How many it has read.
        left: How many were staged then.
        cutoff_ms: Due time after which messages wait elsewhere, ms since the epoch. They are not sent.
    """

    most: int
    left: int
    cutoff_ms: float


@dataclass(frozen=True)
class Job:
    """A bulk job as Redis remembers it.

    Attributes:
        name: Name of the job.
        state: ``open``, ``committed``, ``publishing`` (staged messages are being sent) or ``aborted``.
        run: Number of the job's latest run.
        base_ms: When the job began, ms since the epoch.
        enqueued: Number of messages that the job has sent or staged.
        staged: Number of staged messages that are still to be sent.
        tier: Where its far rows go, as of ``pin_tier``; None for a job that has not pinned it.
    """

    name: str
    state: str
    run: int
    base_ms: float
    enqueued: int
    staged: int
    tier: str | None = None


class BulkJobs(StorePart):
    """Begins, writes and ends bulk jobs.

    One call checks that the run may still write, notes the ids, and sends the messages, all or nothing.
    """

    def __init__(self, client: StoreClient, registry: QueueRegistry) -> None:
        super().__init__(client)
        self._registry = registry

    def new_run(self) -> int:
        """Returns a number that is larger than the numbers of all earlier runs of bulk jobs."""
        return int(self._client.redis.incr(self._keys.runs))

    def begin(self, job: JobRun, stream: str = "") -> Begun:
        """Lets a run write to its job; earlier runs can no longer write.

        Args:
            job: The run.
            stream: Name of the stream that the job belongs to, if any; ``of_stream`` finds the job by it.
        """
        args = [job.run, job.ttl_ms, job.name if stream else "", int(job.staged)]
        word, base = self._client.run("begin", [*self._of_job(job.name), self._keys.stream(stream)], args)
        return Begun(as_text(word), float(base))

    def enqueue(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> Enqueued:
        """Sends messages to one queue, or stages them, unless their ids have been sent by the job.

        Args:
            queue: The queue to which the messages go when they are due.
            job: The run, which has begun.
            offers: The messages. An empty due time is now; a due time relative to arrival is not allowed. A few hundred
                at a time keep Redis responsive. Redis refuses a call with more than 7,999, because Lua cannot pass on
                more arguments. A call with more than ``max_depth`` never fits. An offer with an empty body only
                claims its id, so that the job sends nothing more under it; with a due time, it counts as sent.
        """
        if not offers:
            return Enqueued("enqueued")

        def run(forms: Sequence[str]) -> Any:
            return self._registry.run("enqueue", queue, *self._enqueue_call(queue, job, offers, forms))

        word, *numbers = self._client.in_each_form(run)
        return _enqueued(as_text(word), numbers)

    def enqueue_commands(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> list[Command]:
        """Returns the commands of ``enqueue``, for a caller that sends them itself; ``enqueued`` reads the replies.

        If these commands fail, ``enqueue`` may still succeed: it loads a script that Redis does not know, and leaves
        out the form of backup that the ACL forbids. It does not repeat messages that the commands have sent.
        """
        keys, args = self._enqueue_call(queue, job, offers, self._client.forms)
        return self._registry.around(queue, self._client.evalsha_command("enqueue", keys, args))

    def enqueued(self, replies: Sequence[Any]) -> Enqueued:
        """Returns the result that is in the replies to ``enqueue_commands``."""
        word, *numbers = replies[1]
        return _enqueued(as_text(word), numbers)

    def finish(self, job: JobRun, word: str) -> str:
        """Commits or aborts a job, so that none of its tasks can write any more.

        Redis keeps the ids that an aborted job has sent, so that a later run sends only the missing messages.

        Args:
            job: The run that ends; the number 0 stands for the latest run.
            word: ``committed`` or ``aborted``.

        Returns:
            The state of the job: ``committed``, ``publishing`` (``publish`` must send the staged messages) or
            ``aborted``; or ``superseded``, with nothing changed, because a later run has begun.
        """
        return as_text(self._client.run("finish", self._of_job(job.name), [job.run, word, job.ttl_ms]))

    def publish(self, job: JobRun) -> Enqueued:
        """Sends some of the messages that a committed job has staged.

        Returns:
            ``enqueued`` and the number of messages sent, 0 when none is left; or ``wait`` or ``deep``, as ``enqueue``
            does; or the state of a job that is not being published. A call sends no more messages than ``max_depth``
            has room for.
        """
        return self._client.in_each_form(lambda forms: self._publish(job, forms))

    def _publish(self, job: JobRun, forms: Sequence[str], read: Staged | None = None) -> Enqueued:
        """Calls the script.

        Args:
            job: As of ``publish``.
            forms: The forms of backup by which to count.
            read: What the caller has read. If other messages are staged now, nothing is sent and the caller reads anew.
        """
        staged = self._keys.staged(job.name)
        head = self._client.redis.lindex(staged, 0)
        if head is None:
            return Enqueued("enqueued")
        queue = as_text(head)
        keys = [self._keys.job(job.name), staged, *self._counted(queue, forms)]
        count = read.most if read else PUBLISH_COUNT
        limits = [count, PUBLISH_BYTES, job.max_rate, job.max_depth, job.ttl_ms]
        only = [read.left, repr(read.cutoff_ms)] if read else ["", ""]
        args = [self._client.wake(queue), queue, *limits, *only, *self._client.list_of_priority]
        word, *numbers = self._registry.run("publish", queue, keys, args)
        if as_text(word) == "published":
            count, place, left = numbers
            if left and not count:  # another caller has sent some, maybe the rest of this queue's messages
                return self._publish(job, forms)
            return _enqueued("enqueued", [count, 0, place])
        return _enqueued(as_text(word), numbers)

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
        return bool(as_text(found) == tier and not (is_new and int(enqueued or 0)))

    def choose(self, job: JobRun, fresh_ms: float) -> str | int:
        """Decides which run of a job has its files in the far tier, after this run has written all of its own.

        Returns:
            Number of the run that is chosen, by an earlier call if that is less than ``fresh_ms`` ago; or, with nothing
            changed, why this run may not write, as of ``Begun``.
        """
        word, *chosen = self._client.run("choose", [self._keys.job(job.name)], [job.run, fresh_ms, job.ttl_ms])
        return int(chosen[0]) if chosen else as_text(word)

    def withhold(self, name: str, ttl_ms: int, ids: Sequence[str]) -> list[bool] | None:
        """Claims ids, a few hundred at a time, so that no run of a job sends them, not even one that is to begin.

        Returns:
            For each id, whether it was free until now; None, with nothing changed, when the job is committed. Redis
            remembers the ids for ``ttl_ms`` at least.
        """
        word, *free = self._client.run("withhold", [self._keys.job(name), self._keys.guard(name)], [ttl_ms, *ids])
        return None if as_text(word) == "committed" else list(map(bool, free))

    def sent(self, name: str, ids: Sequence[str]) -> list[bool]:
        """Returns for each id whether an open job has sent or claimed it; False for all once the job is committed."""
        return list(map(bool, self._client.redis.smismember(self._keys.guard(name), list(ids)))) if ids else []

    def find(self, name: str) -> Job | None:
        """Returns what Redis remembers of a job, or None."""
        with self._client.redis.pipeline(transaction=False) as pipe:
            pipe.hgetall(self._keys.job(name))
            pipe.llen(self._keys.staged(name))
            found, staged = pipe.execute()
        fields = {as_text(field): as_text(value) for field, value in found.items()}
        if not fields:
            return None
        run, enqueued = int(fields["run"]), int(fields.get("enqueued", 0))
        base_ms, tier = float(fields["base"]), fields.get("far")
        return Job(name, fields["state"], run, base_ms, enqueued, int(staged) // ENTRIES, tier)

    def of_stream(self, stream: str) -> str | None:
        """Returns the name of the job that a stream last worked on, or None."""
        name = self._client.redis.get(self._keys.stream(stream))
        return None if name is None else as_text(name)

    def _enqueue_call(
        self, queue: str, job: JobRun, offers: Sequence[Offer], forms: Sequence[str]
    ) -> tuple[list[str], list[Any]]:
        keys = [*self._of_job(job.name), *self._counted(queue, forms)]
        limits = [job.run, job.ttl_ms, job.max_rate, job.max_depth, int(job.staged)]
        args: list[Any] = [self._client.wake(queue), queue, *limits, *self._client.list_of_priority]
        for offer in offers:
            args += offer
        return keys, args

    def _of_job(self, name: str) -> list[str]:
        return [self._keys.job(name), self._keys.guard(name), self._keys.staged(name)]

    def _counted(self, queue: str, forms: Sequence[str]) -> list[str]:
        """Returns the keys that messages of a queue go into, and the keys by which they are counted."""
        client = self._client
        return [*client.stored(queue), client.due(queue, forms[-1]), *client.ready(queue)]


def _enqueued(word: str, numbers: Sequence[Any]) -> Enqueued:
    if word == "wait":
        return Enqueued(word, wait_ms=float(numbers[0]))
    if word == "deep":
        return Enqueued(word, depth=int(numbers[0]))
    if word != "enqueued":
        return Enqueued(word)
    count, repeated, _ = numbers
    return Enqueued(word, int(count), int(repeated))
