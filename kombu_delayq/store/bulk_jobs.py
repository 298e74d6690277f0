"""The store's operations on bulk jobs, which send each id once however often their tasks are run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kombu_delayq.connection.text import Command, as_text
from kombu_delayq.store.client import QueueRegistry, StoreClient, StorePart
from kombu_delayq.store.types import Offer

#: Most staged messages that one call sends, and about the most bytes of them.
PUBLISH_COUNT, PUBLISH_BYTES = 200, 300_000
#: Entries of a staged message.
_ENTRIES = 5


class JobRun(NamedTuple):
    """One run of a bulk job, and how it writes.

    Attributes:
        name: Of the job.
        run: Number of the run; later ones are larger.
        ttl_ms: For how long the job is remembered.
        staged: Whether its messages are sent when it is committed, all before then being invisible.
        max_rate: Messages a second for the whole job, 0 for any number.
        max_depth: Most messages that may be in a queue, delayed ones among them, 0 for any number.
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
        word: ``open``; else it may not: ``committed``, ``aborted``, ``superseded`` by a later run, or ``mixed``: a run
            before it has sent what this one would stage, or the reverse.
        base_ms: When the job began, ms since the epoch; the same for all its runs.
    """

    word: str
    base_ms: float


class Enqueued(NamedTuple):
    """What became of messages of a bulk job.

    Attributes:
        word: ``enqueued``; with nothing changed, ``wait`` or ``deep``, or why the run may not write: ``committed``,
            ``aborted``, ``superseded`` or ``unknown``.
        fresh: Number of ids that are new in the job.
        repeated: Number of ids that the job had before.
        wait_ms: How long to wait for the rate.
        depth: Number of messages in the queue, when there are too many.
    """

    word: str
    fresh: int = 0
    repeated: int = 0
    wait_ms: float = 0.0
    depth: int = 0


@dataclass(frozen=True)
class Job:
    """A bulk job as Redis remembers it.

    Attributes:
        name: Of the job.
        state: ``open``, ``committed``, ``publishing`` (staged messages are being sent) or ``aborted``.
        run: Number of its latest run.
        base_ms: When it began, ms since the epoch.
        enqueued: Number of messages that it sent or staged.
        staged: Number of messages that are still to be sent.
    """

    name: str
    state: str
    run: int
    base_ms: float
    enqueued: int
    staged: int


class BulkJobs(StorePart):
    """Begins, writes and ends bulk jobs. A fence, a guard of ids and the messages are changed in one call."""

    def __init__(self, client: StoreClient, registry: QueueRegistry) -> None:
        super().__init__(client)
        self._registry = registry

    def new_run(self) -> int:
        """Returns a number that is larger than those of all runs of bulk jobs before."""
        return int(self._client.redis.incr(self._keys.runs))

    def begin(self, job: JobRun, stream: str = "") -> Begun:
        """Lets a run take part in its job; earlier runs can write no more.

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
            queue: Where they go when they are due.
            job: The run, which has begun.
            offers: The messages, an empty due time being now; no due time counts from arrival. A few hundred at a
                time keep Redis responsive; more than 7,999, which Lua cannot hand on at once, are refused whole by
                Redis, and more than ``max_depth`` are never let through. One with an empty body only claims its id,
                so that the job sends none of that id any more.
        """
        if not offers:
            return Enqueued("enqueued")

        def run(forms: Sequence[str]) -> Any:
            return self._registry.run("enqueue", queue, *self._enqueue_call(queue, job, offers, forms))

        word, *numbers = self._client.in_each_form(run)
        return _enqueued(as_text(word), numbers)

    def enqueue_commands(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> list[Command]:
        """Returns the commands that do what ``enqueue`` does, for who sends them; ``enqueued`` reads the replies.

        Where they fail, ``enqueue`` may do better: it loads a script that Redis does not know, and looks at one form of
        backup alone where the ACL forbids the other. What they have sent is not sent again.
        """
        keys, args = self._enqueue_call(queue, job, offers, self._client.forms)
        sha = self._client.script("enqueue").sha
        return self._registry.around(queue, ("EVALSHA", sha, len(keys), *keys, *args))

    def enqueued(self, replies: Sequence[Any]) -> Enqueued:
        """Returns what the replies to ``enqueue_commands`` say."""
        word, *numbers = replies[1]
        return _enqueued(as_text(word), numbers)

    def finish(self, job: JobRun, word: str) -> str:
        """Commits or aborts a job: from then on none of its tasks can write.

        Of an aborted job the ids that it sent are kept, so that a later run sends what is missing.

        Args:
            job: The run that ends; with the number 0 the latest.
            word: ``committed`` or ``aborted``.

        Returns:
            The state of the job: ``committed``, ``publishing`` (``publish`` has to send what it staged), ``aborted``;
            or, with nothing changed, ``superseded`` (a later run has begun).
        """
        return as_text(self._client.run("finish", self._of_job(job.name), [job.run, word, job.ttl_ms]))

    def publish(self, job: JobRun) -> Enqueued:
        """Sends some of the messages that a committed job has staged.

        Returns:
            As of ``enqueue``: ``enqueued`` and how many, 0 of them when none is left. As many are sent as
            ``max_depth`` has room for. Instead of ``enqueued``, the state of a job that was not committed.
        """
        return self._client.in_each_form(lambda forms: self._publish(job, forms))

    def _publish(self, job: JobRun, forms: Sequence[str]) -> Enqueued:
        staged = self._keys.staged(job.name)
        head = self._client.redis.lindex(staged, 0)
        if head is None:
            return Enqueued("enqueued")
        queue = as_text(head)
        keys = [self._keys.job(job.name), staged, *self._counted(queue, forms)]
        limits = [PUBLISH_COUNT, PUBLISH_BYTES, job.max_rate, job.max_depth, job.ttl_ms]
        args = [self._client.wake(queue), queue, *limits, *self._client.list_of_priority]
        word, *numbers = self._registry.run("publish", queue, keys, args)
        if as_text(word) == "published":
            count, place, left = numbers
            if left and not count:  # meanwhile somebody else has come to the messages of another queue
                return self._publish(job, forms)
            return _enqueued("enqueued", [count, 0, place])
        return _enqueued(as_text(word), numbers)

    def find(self, name: str) -> Job | None:
        """Returns what is remembered of a job, or None."""
        with self._client.redis.pipeline(transaction=False) as pipe:
            pipe.hgetall(self._keys.job(name))
            pipe.llen(self._keys.staged(name))
            found, staged = pipe.execute()
        fields = {as_text(field): as_text(value) for field, value in found.items()}
        if not fields:
            return None
        run, enqueued = int(fields["run"]), int(fields.get("enqueued", 0))
        return Job(name, fields["state"], run, float(fields["base"]), enqueued, int(staged) // _ENTRIES)

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
        """Returns the keys of a queue that messages go into, and those by which its messages are counted."""
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
