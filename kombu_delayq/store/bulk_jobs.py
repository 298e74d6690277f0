"""The store's operations on bulk jobs, which send each id once however often their tasks are run."""

from collections.abc import Sequence
from typing import Any

from kombu_delayq.connection.text import Command, as_text
from kombu_delayq.store.client import Caller, in_each_form
from kombu_delayq.store.job_results import Begun, Enqueued, Job, JobRun
from kombu_delayq.store.types import Offer

#: Most staged messages that one call sends, and about the most bytes of them.
PUBLISH_COUNT, PUBLISH_BYTES = 200, 300_000
#: Entries of a staged message.
_ENTRIES = 5


class BulkJobs(Caller):
    """Begins, writes and ends bulk jobs. A fence, a guard of ids and the messages are changed in one call."""

    def new_run(self) -> int:
        """Returns a number that is larger than those of all runs of bulk jobs before."""
        return int(self.client.incr(self.keys.runs))

    def begin(self, job: JobRun, stream: str = "") -> Begun:
        """Lets a run take part in its job; earlier runs can write no more.

        Args:
            job: The run.
            stream: Name of the stream that the job belongs to, if any; ``job_of_stream`` finds the job by it.
        """
        args = [job.run, job.ttl_ms, job.name if stream else "", int(job.staged)]
        word, base = self._run("begin", [*self._of_job(job.name), self.keys.stream(stream)], args)
        return Begun(as_text(word), float(base))

    @in_each_form
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
        word, *numbers = self._run_known("enqueue", queue, *self._enqueue_call(queue, job, offers))
        return self._enqueued(queue, as_text(word), numbers)

    def enqueue_commands(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> list[Command]:
        """Returns the commands that do what ``enqueue`` does, for who sends them; ``enqueued`` reads the replies.

        Where they fail, ``enqueue`` may do better: it loads a script that Redis does not know, and looks at one form of
        backup alone where the ACL forbids the other. What they have sent is not sent again.
        """
        keys, args = self._enqueue_call(queue, job, offers)
        return self._known(queue, ("EVALSHA", self.script("enqueue").sha, len(keys), *keys, *args))

    def enqueued(self, queue: str, replies: Sequence[Any]) -> Enqueued:
        """Returns what the replies to ``enqueue_commands`` say."""
        word, *numbers = replies[1]
        return self._enqueued(queue, as_text(word), numbers)

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
        return as_text(self._run("finish", self._of_job(job.name), [job.run, word, job.ttl_ms]))

    @in_each_form
    def publish(self, job: JobRun) -> Enqueued:
        """Sends some of the messages that a committed job has staged.

        Returns:
            As of ``enqueue``: ``enqueued`` and how many, 0 of them when none is left. As many are sent as
            ``max_depth`` has room for. Instead of ``enqueued``, the state of a job that was not committed.
        """
        staged = self.keys.staged(job.name)
        head = self.client.lindex(staged, 0)
        if head is None:
            return Enqueued("enqueued")
        queue = as_text(head)
        keys = [self.keys.job(job.name), staged, *self._counted(queue)]
        args = [self._wake(queue), queue, PUBLISH_COUNT, PUBLISH_BYTES, job.max_rate, job.max_depth, job.ttl_ms]
        word, *numbers = self._run_known("publish", queue, keys, [*args, *self._list_of_priority])
        if as_text(word) == "published":
            count, place, left = numbers
            if left and not count:  # meanwhile somebody else has come to the messages of another queue
                return self.publish(job)
            return self._enqueued(queue, "enqueued", [count, 0, place])
        return self._enqueued(queue, as_text(word), numbers)

    def job(self, name: str) -> Job | None:
        """Returns what is remembered of a job, or None."""
        with self.client.pipeline(transaction=False) as pipe:
            pipe.hgetall(self.keys.job(name))
            pipe.llen(self.keys.staged(name))
            found, staged = pipe.execute()
        fields = {as_text(field): as_text(value) for field, value in found.items()}
        if not fields:
            return None
        run, enqueued = int(fields["run"]), int(fields.get("enqueued", 0))
        return Job(name, fields["state"], run, float(fields["base"]), enqueued, int(staged) // _ENTRIES)

    def job_of_stream(self, stream: str) -> str | None:
        """Returns the name of the job that a stream last worked on, or None."""
        name = self.client.get(self.keys.stream(stream))
        return None if name is None else as_text(name)

    def _enqueue_call(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> tuple[list[str], list[Any]]:
        keys = [*self._of_job(job.name), *self._counted(queue)]
        args: list[Any] = [self._wake(queue), queue, job.run, job.ttl_ms, job.max_rate, job.max_depth, int(job.staged)]
        args += self._list_of_priority
        for each in offers:
            args += each
        return keys, args

    def _of_job(self, name: str) -> list[str]:
        return [self.keys.job(name), self.keys.guard(name), self.keys.staged(name)]

    def _counted(self, queue: str) -> list[str]:
        """Returns the keys of a queue in which messages go, and in which they are counted."""
        return [*self._stored(queue), self._due(queue, self._forms[-1]), *self.ready(queue)]

    def _enqueued(self, queue: str, word: str, numbers: Sequence[Any]) -> Enqueued:
        if word == "wait":
            return Enqueued(word, wait_ms=float(numbers[0]))
        if word == "deep":
            return Enqueued(word, depth=int(numbers[0]))
        if word != "enqueued":
            return Enqueued(word)
        count, repeated, _ = numbers
        return Enqueued(word, int(count), int(repeated))
