"""The store's operations on bulk jobs, which send each id once, however often their tasks run.

A job as a whole has a HASH, and a part in the slot of each queue that it writes to. A part is a job of its own: state,
run and guard (the ids that were sent), so that the script that writes to a queue asks keys of one slot alone. The names
of the queues are noted before their parts begin, and read after the job as a whole has changed. So a run that begins a
part of a job that has ended, or has a later run, learns that, or is seen.
"""

from collections.abc import Sequence
from time import monotonic
from typing import Any, NamedTuple

from celery_ext.spark.job_types import COMMITTED, Begun, Enqueued, Job, JobCounts, JobRun, Packable
from celery_ext.spark.keys import JobKeys
from kombu_delayq.redis import Args, Call, Command, HashKey, Rows, StringKey, checked, operation
from kombu_delayq.store import MAX_DUPLICATES, Into, Lists, Offer, QueueRegistry, StoreClient, StorePart
from kombu_delayq.text import as_bytes, as_text

#: Parts are kept for so much longer than the job as a whole, which therefore never outlives what they have sent. In
#: this fraction of ``ttl_ms`` their time begins anew.
RENEWAL = 1 / 4
#: What the part of a job counts, by the fields of its HASH.
_COUNTED = ("enqueued", "kept", "replaced")


class _Part(NamedTuple):
    """The keys of a job's part in the slot of a queue, or of the whole."""

    job: HashKey
    guard: HashKey


@operation()
def begin(*, part: _Part, stream: StringKey, run: int, ttl: int, name: str, base: str) -> tuple[str, Any]: ...
@operation()
def enqueue(
    *,
    part: _Part,
    into: Into,
    run: int,
    ttl: int,
    depth: int,
    mode: str,
    count: int,
    is_dated: bool,
    lists: Lists,
    offers: Rows[Offer],
) -> list[Any]: ...
@operation()
def claim_ids(*, part: _Part, ttl: int, ids: Args[str]) -> list[Any]: ...
@operation()
def job_rate(*, job: HashKey, rate: float, count: int) -> float: ...
@operation()
def finish(*, part: _Part, run: int, word: str, ttl: int, base: str, counted: Args[str | int]) -> str: ...
@operation()
def close(*, job: HashKey, run: int, ttl: int) -> str: ...


class BulkJobs(StorePart):
    """Begins, writes and ends bulk jobs.

    One call checks that the run may still write, notes the ids, and sends the messages, all or nothing.
    """

    def __init__(self, client: StoreClient, registry: QueueRegistry) -> None:
        super().__init__(client, registry)
        self._own = JobKeys(client.keys)
        #: By job and run: when it began last in this process, in s of ``monotonic``.
        self._begun: dict[tuple[str, int], float] = {}
        #: Job, run and queue of the parts that this store has begun.
        self._joined: set[tuple[str, int, str]] = set()

    def new_run(self) -> int:
        """Returns a number that is larger than the numbers of all earlier runs of bulk jobs."""
        return int(self._client.redis.incr(self._own.runs))

    def begin(self, job: JobRun, stream: str = "") -> Begun:
        """Lets a run write to its job; earlier runs can no longer write.

        Args:
            job: The run.
            stream: Name of the stream that the job belongs to, if any; ``of_stream`` finds the job by it.
        """
        self._complete(job)
        part, noted, name = self._part(job.name), self._own.stream(stream), job.name if stream else ""
        call = begin(part=part, stream=noted, run=job.run, ttl=job.ttl_ms, name=name, base="")
        word, base = self._client.run(call)
        begun = Begun(word, float(base))
        if begun.word == "open":
            self._begin_all_parts(job, begun.base_ms)
        return begun

    def enqueue(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> Enqueued:
        """Sends messages to one queue, unless their ids have been sent to it by the job.

        Args:
            queue: The queue to which the messages go when they are due.
            job: The run, which has begun.
            offers: The messages. An empty due time is now; a due time relative to arrival is not allowed. A few hundred
                at a time keep Redis responsive. Redis refuses a call with more than 7,999, because Lua cannot pass on
                more arguments. A call with more than ``max_depth`` never fits. An offer with an empty body only
                claims its id, so that the job sends nothing more under it; with a due time, it counts as sent. Of a job
                with ``if_waiting``, one that waits already counts as new in the job: this job decides once about it.
        """
        if not offers:
            return Enqueued("enqueued")
        word = self._enter(queue, job)
        if word != "open":
            return Enqueued(word)
        admitted = sum(bool(offer.body) for offer in offers)
        wait_ms = self.job_rate(job, admitted)
        if wait_ms:
            return Enqueued("wait", wait_ms=wait_ms)

        done = _enqueued(*self._registry.run(queue, self._enqueue_call(queue, job, offers)))
        self.job_rate(job, min(done.fresh - admitted, 0))
        return done

    def enqueue_commands(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> list[Command]:
        """Returns the commands of ``enqueue``, for a caller that sends them itself; ``enqueued`` reads the replies.

        If these commands fail, ``enqueue`` may still succeed: it loads a script that Redis does not know. It does not
        repeat messages that the commands have sent.
        Without commands, ``enqueue`` has more to ask for.
        """
        if job.max_rate or self._enter(queue, job) != "open":
            return []
        if isinstance(offers, Packable):
            return [(*self._client.command(self._enqueue_call(queue, job, ())), offers.packed())]
        return [self._client.command(self._enqueue_call(queue, job, offers))]

    def enqueued(self, queue: str, replies: Sequence[Any]) -> Enqueued:
        """Returns the result that is in the replies to ``enqueue_commands`` for a queue."""
        [[word, *numbers]] = replies
        self._registry.note(queue, numbers[-1] if numbers else word)
        return _enqueued(word, *numbers)

    def claim_ids(self, job: JobRun, ids: Sequence[str]) -> Enqueued:
        """Claims ids, so that the job sends nothing more under them, to whichever queue.

        A part of the job does not know of this: a sender asks ``excluded`` before and after.

        Args:
            job: The run, which has begun.
            ids: The ids, a few hundred at a time.

        Returns:
            ``enqueued``, or why the run may not write.
        """
        [state, run] = self._fields(job.name, "state", "run")
        word = _fence(state, run, job)
        if word == "open":
            word, *_ = self._client.run(claim_ids(part=self._part(job.name), ttl=job.ttl_ms, ids=ids))
            word = as_text(word)
        return Enqueued("enqueued" if word == "claimed" else word)

    def excluded(self, job: JobRun, ids: Sequence[str]) -> set[str]:
        """Returns which ids an open job has excluded; none of a job that does not cancel."""
        if not job.cancels:
            return set()
        found = self._client.ask("HMGET", self._own.guard(job.name), *ids)
        return {one for one, note in zip(ids, found, strict=True) if note is not None}

    def take_back(self, names: Sequence[str], ids: Sequence[str]) -> None:
        """Lets jobs send ids again: what they have sent under these was cancelled. None of them may be writing.

        Args:
            names: Names of the jobs.
            ids: The ids, a few hundred at a time.
        """
        queues = self._client.send([("SMEMBERS", self._own.parts(name)) for name in names]) if names else []
        guards = [
            self._own.guard(name, as_text(queue)) for name, own in zip(names, queues, strict=True) for queue in own
        ]
        if guards:
            self._client.send([("HDEL", guard, *ids) for guard in guards])

    def sent(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> list[bool]:
        """Returns for each message whether an open job has sent or claimed it; False for all once it is committed."""
        if not offers:
            return []
        notes = self._client.ask("HMGET", self._own.guard(job.name, queue), *(offer.id for offer in offers))
        own = [f"[{offer.due}]" if job.dated else "" for offer in offers]
        return [note is not None and one in as_text(note) for one, note in zip(own, notes, strict=True)]

    def job_rate(self, job: JobRun, count: int) -> float:
        """Asks whether the rate of a job as a whole lets messages through now.

        Args:
            job: The run.
            count: How many; less than 0 for those that were let through and not sent.

        Returns:
            For how long to wait, in ms; 0 if they may be sent.
        """
        if not (job.max_rate and count):
            return 0.0
        return self._client.run(job_rate(job=self._own.job(job.name), rate=job.max_rate, count=count))

    def finish(self, job: JobRun, word: str, counts: JobCounts | None = None) -> str:
        """Commits or aborts a job, so that none of its tasks can write any more.

        Redis keeps the ids that an aborted job has sent, so that a later run sends only the missing messages.

        Args:
            job: The run that ends; the number 0 stands for the latest run.
            word: ``committed`` or ``aborted``.
            counts: What the driver has counted. It is noted unless the job has ended already.

        Returns:
            The state of the job, ``committed`` or ``aborted``; or ``superseded``, with nothing changed, because a later
            run has begun.
        """
        counted = [item for pair in (counts._asdict() if counts else {}).items() for item in pair]
        part = self._part(job.name)
        call = finish(part=part, run=job.run, word=word, ttl=job.ttl_ms, base="", counted=counted)
        state = self._client.run(call)
        if state != "superseded":
            self._end_parts(job, state)
        return state

    def close(self, job: JobRun) -> str:
        """Notes that the parts of a job have ended; ``finish`` does it.

        Returns:
            ``closed``; or, with nothing changed, ``superseded`` or ``unknown``.
        """
        return self._client.run(close(job=self._own.job(job.name), run=job.run, ttl=job.ttl_ms))

    def find(self, name: str) -> Job | None:
        """Returns what Redis remembers of a job, or None; two round trips at most."""
        found, queues = self._client.send([("HGETALL", self._own.job(name)), ("SMEMBERS", self._own.parts(name))])
        fields = {as_text(field): as_text(value) for field, value in found.items()}
        commands = [("HMGET", self._own.job(name, as_text(queue)), *_COUNTED) for queue in queues]
        replies = self._client.send(commands) if commands else []
        counts = {of: sum(int(part[at] or 0) for part in replies) for at, of in enumerate(_COUNTED)}
        return Job.of(name, fields, counts) if fields else None

    def of_stream(self, stream: str) -> str | None:
        """Returns the name of the job that a stream last worked on, or None."""
        name = self._client.redis.get(self._own.stream(stream))
        return None if name is None else as_text(name)

    def _enter(self, queue: str, job: JobRun) -> str:
        """Begins the part of a queue, once a store. Returns ``open``, or why the run may not write."""
        begun = self._begun.get((job.name, job.run))
        if begun is not None and monotonic() - begun > job.ttl_ms / 1000 * RENEWAL:  # Redis keeps the job for longer
            state, run = self._fields(job.name, "state", "run")
            word = _fence(state, run, job)
            word = self.begin(job).word if word == "open" else word
            if word != "open":
                return word
        if (job.name, job.run, queue) in self._joined:
            return "open"
        _, _, (state, run, base) = self._client.send(
            [
                ("SADD", self._own.parts(job.name), as_bytes(queue)),
                ("PEXPIRE", self._own.parts(job.name), longer(job.ttl_ms)),
                ("HMGET", self._own.job(job.name), "state", "run", "base"),
            ]
        )
        word = _fence(state, run, job)
        if word == "open":
            [word] = self._begin_parts(job, float(base), [queue])
        if word == "open":
            self._joined.add((job.name, job.run, queue))
        return word

    def _begin_all_parts(self, job: JobRun, base_ms: float) -> None:
        """Lets a run that has begun write to all parts of its job, and earlier runs to none."""
        # Redis may have lost the parts, and the count of the runs, so that a run has the number of one before.
        self._joined = {part for part in self._joined if part[0] != job.name}
        queues = self._queues(job.name)
        self._begin_parts(job, base_ms, queues)
        if queues:
            self._client.ask("PEXPIRE", self._own.parts(job.name), longer(job.ttl_ms))
        self._begun[job.name, job.run] = monotonic()

    def _complete(self, job: JobRun) -> None:
        """Ends the parts of a job whose end was cut short, before another run begins."""
        state, run, closed = self._fields(job.name, "state", "run", "closed")
        if state is not None and as_text(state) != "open" and closed != run:
            self._end_parts(job, as_text(state))

    def _end_parts(self, job: JobRun, state: str) -> None:
        """Ends the parts of a job that has ended as a whole, unless that is done. Any run that meets such a job may."""
        run, closed, base = self._fields(job.name, "run", "closed", "base")
        if run is None or base is None or closed == run:
            return
        word, since = "aborted" if state == "aborted" else "committed", f"{float(base):.17g}"
        parts = [self._part(job.name, queue) for queue in self._queues(job.name)]
        self._each(
            [finish(part=one, run=int(run), word=word, ttl=longer(job.ttl_ms), base=since, counted=()) for one in parts]
        )
        self.close(job._replace(run=int(run)))
        self._client.ask("PEXPIRE", self._own.parts(job.name), longer(job.ttl_ms))

    def _enqueue_call(self, queue: str, job: JobRun, offers: Sequence[Offer]) -> Call[list[Any]]:
        return enqueue(
            part=self._part(job.name, queue),
            into=self._client.into(queue),
            run=job.run,
            ttl=longer(job.ttl_ms),
            depth=job.max_depth,
            mode=job.if_waiting,
            count=MAX_DUPLICATES,
            is_dated=job.dated,
            lists=self._client.lists(queue),
            offers=offers,
        )

    def _begin_parts(self, job: JobRun, base_ms: float, queues: Sequence[str]) -> list[str]:
        of_run = {"run": job.run, "ttl": longer(job.ttl_ms)}
        keys = [(self._part(job.name, queue), self._own.stream(job.name, queue)) for queue in queues]
        base = f"{base_ms:.17g}"
        calls = [begin(part=part, stream=stream, **of_run, name="", base=base) for part, stream in keys]
        return [word for word, _ in self._each(calls)]

    def _each(self, calls: Sequence[Call[Any]]) -> list[Any]:
        return checked(self._client.run_each(calls)[0]) if calls else []

    def _queues(self, name: str) -> list[str]:
        """Returns the names of the queues in whose slots a job has a part."""
        return sorted(map(as_text, self._client.ask("SMEMBERS", self._own.parts(name))))

    def _fields(self, name: str, *fields: str) -> list[bytes | None]:
        """Returns fields of a job as a whole."""
        [found] = self._client.send([("HMGET", self._own.job(name), *fields)])  # an error names the key
        return list(found)

    def _part(self, name: str, queue: str | None = None) -> _Part:
        """Returns the keys of a job's part in the slot of a queue, or of the whole."""
        return _Part(self._own.job(name, queue), self._own.guard(name, queue))


def longer(ttl_ms: int) -> int:
    """Returns for how long Redis keeps the parts of a job that is kept for ``ttl_ms``, in ms."""
    return round(ttl_ms * (1 + RENEWAL))


def _fence(state: bytes | None, latest: bytes | None, job: JobRun) -> str:
    """Returns ``open``, or why a run may not write, as the scripts do."""
    if state is None or latest is None:
        return "unknown"
    word = as_text(state)
    if word in COMMITTED:
        return "committed"
    if int(latest) == job.run:
        return word
    return "superseded" if job.run < int(latest) else "unknown"


def _enqueued(word: str | bytes, *numbers: Any) -> Enqueued:
    word = as_text(word)
    if word == "deep":
        return Enqueued(word, depth=int(numbers[0]))
    if word != "enqueued":
        return Enqueued(word)
    count, repeated, _ = numbers
    return Enqueued(word, int(count), int(repeated))
