"""The jobs of a run, their order, and their time."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import monotonic

from tests.bench import jobs
from tests.bench.contender import Contender, Failed
from tests.bench.filling import TWO
from tests.bench.jobs import Found
from tests.bench.results import Gap, Results, Sample
from tests.bench.scripts import script_limit, scripts

#: How long jobs usually take at most, in s, to know whether there is time for one.
GROWTH_S, LIMIT_S, BACKLOG_S, START_S = 25.0, 15.0, 25.0, 15.0
#: Messages of a backlog enqueued, and moved, a second, at least.
FILLED_PER_S = 12_000
#: Messages offered and transferred a second by scripts alone, at least, in either form.
SCRIPTED_PER_S = 12_000
#: A job is ended after this many times its usual time: a machine may be slow, and a contender slower than the others.
PATIENCE = 3
#: A worker that is one process gets as many tasks as its producer enqueues in this time, in s.
ALONE_FILL_S = 8.0
#: How long an idle consumer takes to start, in s.
CONSUMER_S = 0.5
#: Contenders that are measured at the same time with more than a FEW idle consumers.
TOGETHER, FEW = 4, 10


@dataclass(frozen=True)
class Scale:
    """How large a run is.

    Attributes:
        sizes: Backlogs. To the first, tasks are enqueued one at a time and in bulk.
        fill_s: A backlog is left out if enqueueing it would take longer, in s.
        rounds: Of the smallest backlog, if there is time.
        per_s: Tasks that come due a second at random times.
        seconds: For how long.
        burst: Tasks that come due in one instant.
        alone: Tasks that wait for a worker that is one process.
        alone_rounds: Of these, if there is time for more than one.
        grown: Tasks that wait while a worker's memory is measured.
        consumers: Numbers of idle consumers.
        pushes: Of the bare command.
        together: Number of contenders that run at the same time, even where times are measured.
        limit_s: Length of the run, in s; it ends then, whatever is left.
    """

    sizes: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    fill_s: float = 65.0
    rounds: int = 3
    per_s: int = 100
    seconds: int = 60
    burst: int = 20_000
    alone: int = 20_000
    alone_rounds: int = 3
    grown: int = 10_000
    consumers: tuple[int, ...] = (1, 10, 100)
    pushes: int = 200_000
    together: int = 1
    limit_s: float = 29 * 60.0


QUICK = Scale(
    sizes=(2_000,),
    fill_s=10.0,
    rounds=1,
    seconds=4,
    burst=500,
    alone=1_000,
    alone_rounds=1,
    grown=1_000,
    consumers=(1,),
    pushes=20_000,
    together=6,
    limit_s=170.0,
)


@dataclass(frozen=True)
class Job:
    """A part of a run.

    Attributes:
        title: Name that is printed while it runs.
        contenders: The contenders that run at the same time.
        takes_s: How long it usually takes at most, in s. It does not begin when less time is left.
        work: Called with the deadline.
        measure: ``measure`` of the gap if it does not run.
        size: ``size`` of this gap.
    """

    title: str
    contenders: Sequence[Contender]
    takes_s: float
    work: Callable[[float], Found]
    measure: str
    size: int = 0


class Run:
    """Runs jobs until all are done or the time is over.

    Args:
        contenders: The contenders that can run.
        scale: Size of the run.
        say: Called with each line about the jobs and their results.
    """

    def __init__(self, contenders: Sequence[Contender], scale: Scale, say: Callable[[str], None]) -> None:
        self.results = Results()
        self._contenders = contenders
        self._ours = [contender for contender in contenders if contender.env.get("BENCH_BACKUP")]
        self._scale = scale
        self._say = say
        self._begun = monotonic()
        for contender in contenders:
            self.results.gaps += [Gap(measure, contender.name, 0, why) for measure, why in contender.gaps.items()]
            if "bulk" not in contender.ways:
                self.results.gaps.append(Gap("enqueue_bulk", contender.name, 0, "has no way for many"))

    def run(self) -> None:
        """Runs all jobs for which there is time."""
        for together in self._plan():
            longest_s = max(job.takes_s for job in together)
            left_s = self._begun + self._scale.limit_s - monotonic()
            if left_s < longest_s:
                for job in together:
                    self._leave_out(job, "no time was left for it in this run")
                continue
            deadline = monotonic() + min(left_s, PATIENCE * longest_s)
            if len(together) == 1:  # in this thread, which Ctrl-C ends
                self._do(together[0], deadline)
                continue
            with ThreadPoolExecutor(len(together)) as pool:
                for _ in pool.map(partial(self._do, deadline=deadline), together):
                    pass

    def _plan(self) -> Iterator[Sequence[Job]]:
        """Yields jobs that are done at the same time, which are those that do not measure time."""
        scale = self._scale
        small, *more = scale.sizes
        yield from self._backlogs(small, self._contenders)
        yield from self._poisson()
        yield from self._bursts()
        yield from self._alone()
        yield from self._scripts()
        yield from self._growths()
        for count in scale.consumers:
            yield from self._idle(count)
        for size in more[:-1]:
            yield from self._backlogs(size, self._contenders)
        others = [contender for contender in self._contenders if contender not in self._ours]
        for size in more[-1:]:
            yield from self._backlogs(size, self._ours)
            yield from self._backlogs(small, self._contenders)
            if scale.alone_rounds > 1:
                yield from self._alone()
            yield from self._backlogs(size, others)
        for _ in range(2, scale.alone_rounds):
            yield from self._alone()
        for _ in range(2, scale.rounds):
            yield from self._backlogs(small, self._contenders)

    def _backlogs(self, size: int, contenders: Sequence[Contender]) -> Iterator[Sequence[Job]]:
        both, within_s = size == self._scale.sizes[0], self._scale.fill_s
        takes_s = BACKLOG_S + size / FILLED_PER_S
        able = [contender for contender in contenders if both or self._rate("", contender, size, size) is not None]
        for some in _split(able, self._scale.together):
            yield [
                Job(
                    f"backlog of {size:,}",
                    [contender],
                    takes_s,
                    partial(jobs.backlog, contender, size, both=both, within_s=within_s),
                    "",
                    size,
                )
                for contender in some
            ]

    def _poisson(self) -> Iterator[Sequence[Job]]:
        light = [contender for contender in self._contenders if not contender.heavy]
        heavy = [contender for contender in self._contenders if contender.heavy]
        groups = [light[0::2], light[1::2], heavy] if self._scale.together == 1 else [light, heavy]
        count, seconds = self._scale.per_s * self._scale.seconds, self._scale.seconds
        yield from self._late("poisson", groups, count, seconds)

    def _bursts(self) -> Iterator[Sequence[Job]]:
        groups = list(_split(self._contenders, self._scale.together))
        yield from self._late("burst", groups, self._scale.burst, 0)

    def _late(
        self, measure: str, groups: Sequence[Sequence[Contender]], count: int, seconds: float
    ) -> Iterator[Sequence[Job]]:
        for group in groups:
            rates = {contender: rate for contender in group if (rate := self._rate(measure, contender, count, 0))}
            if rates:
                fill_s = sum(count / rate for rate in rates.values())
                takes_s = START_S + 2 * len(rates) + jobs.SLOWER * fill_s + seconds + jobs.GRACE_S
                work = partial(jobs.lateness, measure, rates, count, seconds)
                yield [Job(f"{measure}, {count:,} tasks", list(rates), takes_s, work, measure)]

    def _alone(self) -> Iterator[Sequence[Job]]:
        for some in _split(self._contenders, self._scale.together):
            together = []
            for contender in some:
                rate = self._rate("alone", contender, 0, 0)
                if rate:
                    count = min(self._scale.alone, int(rate * ALONE_FILL_S))
                    work, takes_s = partial(jobs.alone, contender, count), START_S + count / rate + jobs.ALONE_S
                    together.append(Job("one worker process", [contender], takes_s, work, "alone"))
            if together:
                yield together

    def _idle(self, count: int) -> Iterator[Sequence[Job]]:
        together = TOGETHER if count > FEW else len(self._contenders)
        takes_s = START_S + count * CONSUMER_S
        for some in _split(self._contenders, together):
            yield [
                Job(f"{count} idle", [contender], takes_s, partial(jobs.idle, contender, count), "idle", count)
                for contender in some
            ]
        if count == self._scale.consumers[-1]:
            # One after the other: the cores' caches are theirs alone then, on which so little CPU time depends.
            for contender in self._contenders:
                if contender.quiet:
                    job = partial(jobs.quiet, contender, count)
                    yield [Job(f"{count} idle and quiet", [contender], takes_s, job, "quiet", count)]

    def _growths(self) -> Iterator[Sequence[Job]]:
        count = self._scale.grown
        rates = {contender: self._rate("worker", contender, count, count) for contender in self._contenders}
        able = {contender: rate for contender, rate in rates.items() if rate}
        if able:
            yield [
                Job(
                    "growth",
                    [contender],
                    GROWTH_S + 2 * count / rate,
                    partial(jobs.growth, contender, count),
                    "worker",
                    count,
                )
                for contender, rate in able.items()
            ]

    def _scripts(self) -> Iterator[Sequence[Job]]:
        ours, pushes = self._ours, self._scale.pushes
        if ours:
            yield [Job("bare LPUSH", ours[:1], LIMIT_S, partial(jobs.limit, ours[0], pushes), "limit")]
            yield [Job("bare LPUSH, 1,000 bytes", ours[:1], LIMIT_S, partial(script_limit, pushes), "script_limit")]
        for size in self._scale.sizes:
            takes_s = LIMIT_S + size / SCRIPTED_PER_S
            for contender in ours:
                work = partial(scripts, contender.name, contender.env["BENCH_BACKUP"], size)
                yield [Job(f"scripts, {size:,} messages of 1,000 bytes", [contender], takes_s, work, "script", size)]

    def _rate(self, measure: str, contender: Contender, count: int, size: int) -> float | None:
        """Returns how many tasks a second it has enqueued in the way for many; None, with a gap, if that is too few."""
        row = "enqueue_bulk" if "bulk" in contender.ways else "enqueue_one"
        found = self.results.of(row, contender.name, self._scale.sizes[0])
        if isinstance(found, str):
            why = "not tried: how fast it enqueues is not known in this run"
        elif count / found.median > self._scale.fill_s * (TWO if size else 1):
            why = f"not tried: enqueueing {count:,} takes about {count / found.median:,.0f} s"
        else:
            return found.median
        self.results.gaps.append(Gap(measure, contender.name, size, why))
        return None

    def _do(self, job: Job, deadline: float) -> None:
        begun, names = monotonic(), ", ".join(contender.name for contender in job.contenders)
        try:
            for found in job.work(deadline):
                (self.results.samples if isinstance(found, Sample) else self.results.gaps).append(found)
                self._say(f"    {found}")
        except Failed as error:
            self._leave_out(job, f"failed: {error}", failed=True)
        except Exception as error:  # of whatever library a server needs: the page has it, and the others are measured
            self._leave_out(job, f"failed: {type(error).__name__}: {error}", failed=True)
        self._say(f"{monotonic() - self._begun:6.0f} s  {job.title}: {names}, {monotonic() - begun:.0f} s")

    def _leave_out(self, job: Job, why: str, *, failed: bool = False) -> None:
        for contender in job.contenders:
            self._say(f"{contender.name}, {job.title}: {why}")
            self.results.gaps.append(Gap(job.measure, contender.name, job.size, why, failed))


def _split(contenders: Sequence[Contender], count: int) -> Iterator[Sequence[Contender]]:
    """Yields ``count`` contenders at a time."""
    for start in range(0, len(contenders), count):
        yield contenders[start : start + count]
