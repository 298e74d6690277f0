"""The store's operations on bulk jobs."""

from collections.abc import Sequence
from typing import Any

from kombu_delayq.connection.text import Command, as_text
from kombu_delayq.store.bulk_jobs.far import FarJobs
from kombu_delayq.store.bulk_jobs.parts import JobParts, longer
from kombu_delayq.store.bulk_jobs.types import (
    PUBLISH_BYTES,
    PUBLISH_COUNT,
    Begun,
    Enqueued,
    JobCounts,
    JobRun,
    Staged,
)
from kombu_delayq.store.client import StoreClient
from kombu_delayq.store.registry import QueueRegistry
from kombu_delayq.store.types import Offer


class BulkJobs(FarJobs):
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
        if self._parts is not None:
            self._parts.complete(job)
        args = [job.run, job.ttl_ms, job.name if stream else "", int(job.staged), ""]
        word, base = self._client.run("begin", [*self._of_job(job.name), self._keys.stream(stream)], args)
        begun = Begun(as_text(word), float(base))
        if self._parts is not None and begun.word == "open":
            self._parts.begin(job, begun.base_ms)
        return begun

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
        word = self.enter(queue, job)
        if word != "open":
            return Enqueued(word)
        admitted = 0 if job.staged or self._parts is None else sum(bool(offer.body) for offer in offers)
        wait_ms = self.pace(job, admitted)
        if wait_ms:
            return Enqueued("wait", wait_ms=wait_ms)

        def run(forms: Sequence[str]) -> Any:
            return self._registry.run("enqueue", queue, *self._enqueue_call(queue, job, offers, forms))

        word, *numbers = self._client.in_each_form(run)
        if self._parts is not None and as_text(word) == "unknown":
            word = self._parts.rejoin(queue, job)
            if word == "open":
                word, *numbers = self._client.in_each_form(run)
        done = _enqueued(as_text(word), numbers)
        self.pace(job, min(done.fresh - admitted, 0))
        return done

    def exclude(self, queue: str, job: JobRun, ids: Sequence[str]) -> Enqueued:
        """Claims ids, so that the job sends nothing more under them, to whichever queue.

        Where Redis has hash slots, a part of the job does not know of this: whoever sends asks ``excluded``.

        Args:
            queue: Any queue.
            job: The run, which has begun.
            ids: The ids, a few hundred at a time.

        Returns:
            ``enqueued``, or why the run may not write.
        """
        if self._parts is None:
            return self.enqueue(queue, job, [Offer(one, "", 0, "") for one in ids])
        word = self._parts.look(job)
        if word == "open":
            keys = [self._keys.job(job.name), self._keys.guard(job.name)]
            word = as_text(self._client.run("withhold", keys, [job.ttl_ms, *ids])[0])
        return Enqueued("enqueued" if word == "withheld" else word)

    def pace(self, job: JobRun, count: int) -> float:
        """Asks, where Redis has hash slots, whether the rate of a job as a whole lets messages through now.

        Args:
            job: The run.
            count: How many; less than 0 for those that were let through and not sent.

        Returns:
            For how long to wait, in ms; 0 if they may be sent.
        """
        if not (job.max_rate and count):
            return 0.0
        return float(self._client.run("pace", [self._keys.job(job.name)], [job.max_rate, count]))

    def enqueue_commands(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> list[Command]:
        """Returns the commands of ``enqueue``, for a caller that sends them itself; ``enqueued`` reads the replies.

        If these commands fail, ``enqueue`` may still succeed: it loads a script that Redis does not know, and leaves
        out the layout that the ACL forbids. It does not repeat messages that the commands have sent.
        Without commands, ``enqueue`` has more to ask for.
        """
        if self._parts is not None and (job.max_rate or self.enter(queue, job) != "open"):
            return []
        keys, args = self._enqueue_call(queue, job, offers, self._client.forms)
        return self._registry.around(queue, self._client.evalsha_command("enqueue", keys, args))

    def enqueued(self, queue: str, replies: Sequence[Any]) -> Enqueued:
        """Returns the result that is in the replies to ``enqueue_commands`` for a queue."""
        word, *numbers = replies[len(replies) // 2]
        if numbers and numbers[-1] in (b"first", "first"):
            self._registry.confirm(queue)
        return _enqueued(as_text(word), numbers)

    def finish(self, job: JobRun, word: str, counts: JobCounts | None = None) -> str:
        """Commits or aborts a job, so that none of its tasks can write any more.

        Redis keeps the ids that an aborted job has sent, so that a later run sends only the missing messages.

        Args:
            job: The run that ends; the number 0 stands for the latest run.
            word: ``committed`` or ``aborted``.
            counts: What the driver has counted. A commit notes it, unless the job has ended already.

        Returns:
            The state of the job: ``committed``, ``publishing`` (``publish`` must send the staged messages) or
            ``aborted``; or ``superseded``, with nothing changed, because a later run has begun.
        """
        counted = [item for pair in (counts._asdict() if counts else {}).items() for item in pair]
        args = [job.run, word, job.ttl_ms, "", *counted]
        state = as_text(self._client.run("finish", self._of_job(job.name), args))
        return state if self._parts is None or state == "superseded" else self._parts.end(job, state)

    def close(self, job: JobRun, state: str) -> str:
        """Notes, where Redis has hash slots, that the parts of a job have ended; ``finish`` and ``publish`` do it.

        Args:
            job: The run that has ended.
            state: What the parts have come to: ``committed``, ``publishing`` or ``aborted``.

        Returns:
            ``closed``; or, with nothing changed, ``superseded`` or ``unknown``.
        """
        return JobParts(self._client).close(job, state)

    def publish(self, job: JobRun) -> Enqueued:
        """Sends some of the messages that a committed job has staged.

        Returns:
            ``enqueued`` and the number of messages sent, 0 when none is left; or ``wait`` or ``deep``, as ``enqueue``
            does; or the state of a job that is not being published. A call sends no more messages than ``max_depth``
            has room for.
        """
        return self._client.in_each_form(lambda forms: self._publish(job, forms))

    def _publish(self, job: JobRun, forms: Sequence[str]) -> Enqueued:
        if self._parts is not None:
            return self._publish_parts(self._parts, job, forms)
        head = self._client.redis.lindex(self._keys.staged(job.name), 0)
        return Enqueued("enqueued") if head is None else self._publish_to(as_text(head), job, forms)

    def _publish_parts(
        self, parts: JobParts, job: JobRun, forms: Sequence[str], before: dict[str, int] | None = None
    ) -> Enqueued:
        """Sends staged messages of one queue, the first that has room and of which another caller has not sent all.

        Args:
            parts: The parts of the job.
            job: As of ``publish``.
            forms: The layouts by which to count.
            before: How many were staged for each queue when all parts were found to be published.
        """
        staged = parts.staged_in(job.name)
        if not staged:
            parts.end_publishing(job)
            return Enqueued("enqueued")
        admitted = min(PUBLISH_COUNT, max(staged.values()))
        wait_ms = self.pace(job, admitted)
        if wait_ms:
            return Enqueued("wait", wait_ms=wait_ms)
        done = Enqueued("enqueued")
        full: Enqueued | None = None
        for queue in staged:
            done = self._publish_to(queue, job, forms)
            full = done if done.word == "deep" else full
            if done.word not in ("deep", "committed"):
                break
        self.pace(job, min(done.fresh - admitted, 0))
        if done.word != "committed":
            return done
        if full is not None or staged == before:
            return full or done
        return self._publish_parts(parts, job, forms, staged)  # another caller has sent what was staged

    def _publish_to(self, queue: str, job: JobRun, forms: Sequence[str], read: Staged | None = None) -> Enqueued:
        """Calls the script.

        Args:
            queue: The queue of the first staged messages.
            job: As of ``publish``.
            forms: The layouts by which to count.
            read: What the caller has read. If other messages are staged now, nothing is sent and the caller reads anew.
        """
        key, _, staged = self._part(job.name, queue)
        keys = [key, staged, *self._counted(queue, forms)]
        count = read.most if read else PUBLISH_COUNT
        limits = [count, PUBLISH_BYTES, *self._rate_and_depth(job), self._ttl_of(job)]
        only = [read.left, repr(read.cutoff_ms)] if read else ["", ""]
        args = [self._client.wake(queue), queue, *limits, *only, *self._client.list_of_priority]
        word, *numbers = self._registry.run("publish", queue, keys, args)
        if as_text(word) == "published":
            count, place, left = numbers
            if left and not count:  # another caller has sent some, maybe the rest of this queue's messages
                return self._publish(job, forms)
            return _enqueued("enqueued", [count, 0, place])
        return _enqueued(as_text(word), numbers)

    def _enqueue_call(
        self, queue: str, job: JobRun, offers: Sequence[Offer], forms: Sequence[str]
    ) -> tuple[list[str], list[Any]]:
        keys = [*self._part(job.name, queue), *self._counted(queue, forms)]
        limits = [job.run, self._ttl_of(job), *self._rate_and_depth(job), int(job.staged)]
        args: list[Any] = [self._client.wake(queue), queue, *limits, *self._client.list_of_priority]
        for offer in offers:
            args += offer
        return keys, args

    def enter(self, queue: str, job: JobRun) -> str:
        """Begins the part of a queue, where jobs have parts. Returns ``open``, or why the run may not write."""
        if self._parts is None:
            return "open"
        if self._parts.is_due(job):
            word = self._parts.look(job)
            word = self.begin(job).word if word == "open" else word
            if word != "open":
                return word
        return self._parts.join(queue, job)

    def _rate_and_depth(self, job: JobRun) -> tuple[float, int]:
        # ``pace`` knows the rate of all parts together.
        return (job.max_rate if self._parts is None else 0, job.max_depth)

    def _ttl_of(self, job: JobRun) -> int:
        return job.ttl_ms if self._parts is None else longer(job.ttl_ms)

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
