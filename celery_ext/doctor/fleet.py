"""Checks of the workers of a broker, and of how they fit together."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import time
from typing import Any

from packaging.version import InvalidVersion, Version

from celery_ext.connection import TRANSPORT
from celery_ext.delays import in_words
from celery_ext.doctor.finding import Finding, Findings, counted, named
from celery_ext.doctor.subject import Subject
from celery_ext.doctor.workers import Worker
from celery_ext.facts import ALIKE, BETTER_ALIKE, options_of
from celery_ext.health import Level


@dataclass(frozen=True)
class KombuFault:
    """A fault of kombu's Redis transport.

    Attributes:
        issue: Where it is described.
        mended: The first release of kombu without it.
        effect: What happens.
        ours: Whether processes on our transport have it, too. Such a fault stops no task.
    """

    issue: str
    mended: str
    effect: str
    ours: bool


FAULTS = (
    KombuFault(
        "https://github.com/celery/celery/issues/10205",
        "5.7",
        "after a connection is lost, a worker may answer and consume nothing until it is restarted",
        ours=False,  # the poller stays in the event loop
    ),
    KombuFault(
        "https://github.com/celery/celery/issues/10502",
        "5.7",
        "after its idle subscription is cut without a word, a worker hears no remote control and no Broadcast queue",
        ours=True,
    ),
)


def faults_of(kombu: str, *, ours: bool) -> Iterator[KombuFault]:
    """Yields the faults of a process.

    Args:
        kombu: Its version of kombu; a text that is none has no faults.
        ours: Whether it uses our transport, and consumes by ``fetch``.
    """
    try:
        version = Version(kombu)
    except InvalidVersion:
        return
    for fault in FAULTS:
        if version < Version(fault.mended) and (fault.ours or not ours):
            yield fault


#: From how many s on a worker's clock is wrong.
CLOCK_OFF_S = 1.0
#: How the process that asks is named among workers.
THIS = "this process"


def workers(subject: Subject) -> Findings:
    """Does each worker answer?"""
    found = subject.the_workers
    if found:
        yield Finding(
            Level.OK, f"{counted(len(found), 'answers', 'answer')}: {named([_shown(worker) for worker in found])}"
        )
    pids = {str(worker.pid) for worker in found}
    silent = sorted(
        {
            f"{lease.host}:{lease.pid}"
            for lease in subject.the_store.consumers.all()
            if lease.left_ms > 0 and not lease.is_http and lease.pid not in pids
        }
    )
    if silent:
        yield Finding(
            Level.NOTICE if found else Level.WARNING,
            f"{counted(len(silent), 'consumer lives and does', 'consumers live and do')} not answer remote control: "
            f"{named(silent)}",
            "nothing, if it is no Celery worker, or has worker_enable_remote_control=False. Else raise --timeout, or "
            "restart it",
            "troubleshooting.md#celery-inspect-and-flower-show-nothing-or-broker",
        )
    elif not found:
        yield Finding(Level.NOTICE, "no worker runs, or none answers in time", "start one, or raise --timeout")


def fleet(subject: Subject) -> Findings:
    """Do all workers use our transport?"""
    stock = [worker for worker in subject.the_workers if not worker.ours]
    if stock:
        of, alone = len(subject.the_workers), len(stock) == len(subject.the_workers)
        who = "the only worker" if of == 1 else "all workers" if alone else f"{len(stock):,} of {of:,} workers"
        yield Finding(
            Level.ERROR if alone else Level.WARNING,
            f"{who} {'uses' if len(stock) == 1 else 'use'} the stock transport: "
            f"{named([f'{worker.name} ({worker.transport})' for worker in stock])}. What such a worker gets too early "
            "waits in its memory, and what it loses comes back after visibility_timeout",
            f'set broker_transport = "{TRANSPORT}" in its app, and restart it',
            "how-to/migrate.md#what-happens-on-the-way",
        )


def same_options(subject: Subject) -> Findings:
    """Do all processes have the same transport options?"""
    found: dict[str, Mapping[str, Any]] = {worker.name: worker.options for worker in subject.the_workers}
    if subject.app is not None:
        found[THIS] = options_of(subject.channel)
    for name in (*ALIKE, *BETTER_ALIKE):
        by_value = defaultdict[str, list[str]](list)
        for process, options in found.items():
            if name in options:
                by_value[json.dumps(options[name], sort_keys=True)].append(process)
        if len(by_value) > 1:
            values = "; ".join(f"{value} in {named(processes)}" for value, processes in by_value.items())
            strict = name in ALIKE
            yield Finding(
                Level.ERROR if strict else Level.WARNING,
                f"the transport option {name} differs: {values}"
                + (". Messages of one go where others do not look" if strict else ""),
                "set it alike in all processes, and restart them",
                "reference/options.md",
            )


def versions(subject: Subject) -> Findings:
    """Do all workers have the same release of kombu-delayq, and no kombu with known faults?"""
    by_release = defaultdict[str, list[str]](list)
    for worker in subject.the_workers:
        if "kombu_delayq" in worker.versions:
            by_release[worker.versions["kombu_delayq"]].append(worker.name)
    if len(by_release) > 1:
        shown = "; ".join(f"{release} in {named(names)}" for release, names in sorted(by_release.items()))
        yield Finding(
            Level.NOTICE,
            f"workers have different releases of kombu-delayq: {shown}",
            "go on with the upgrade: two releases next to each other may share a broker",
            "reference/stability.md#mixed-fleets",
        )
    yield from _faults(subject.the_workers)


def _faults(found: Sequence[Worker]) -> Findings:
    having = defaultdict[str, list[str]](list)
    for worker in found:
        for fault in faults_of(worker.versions.get("kombu", ""), ours=worker.fetches):
            having[fault.issue].append(f"{worker.name} (kombu {worker.versions['kombu']})")
    for fault in FAULTS:
        if fault.issue in having:
            yield Finding(
                Level.NOTICE if fault.ours else Level.WARNING,
                f"{fault.effect}: {named(having[fault.issue])}. See {fault.issue}",
                f"upgrade kombu to {fault.mended} or later there",
                "reference/compatibility.md",
            )


def clocks(subject: Subject) -> Findings:
    """Do workers and Redis have the same time?"""
    ahead_s = [offset.ahead_s for offset in subject.clocks.values()]
    redis_ahead_s = sum(ahead_s) / len(ahead_s)  # of this process; the nodes of a cluster have a check of their own
    off = []
    for worker in subject.the_workers:
        if worker.clock_s is None:
            continue
        earliest, latest = (moment - redis_ahead_s for moment in worker.between_s)
        by_s = max(worker.clock_s - latest, earliest - worker.clock_s)
        if by_s >= CLOCK_OFF_S:
            way = "ahead" if worker.clock_s > latest else "behind"
            off.append(f"{worker.name} ({in_words(by_s, plain=True)} {way})")
    if off:
        yield Finding(
            Level.WARNING,
            f"{counted(len(off), 'worker has', 'workers have')} another time than Redis: {named(off)}. Retries from "
            "there come too early or too late, and a worker that is behind holds tasks with an eta back",
            "keep clocks in step, by NTP",
            "how-to/transfer-workers.md#clocks",
        )


def rates(subject: Subject) -> Findings:
    """Do workers hold no more of a queue at once than its ``transfer_rate`` lets go?"""
    held = Counter[str]()
    for worker in subject.the_workers:
        held.update(dict.fromkeys(worker.queues, worker.prefetch))
    ahead = []
    for queue, prefetch in sorted(held.items()):
        limits = subject.the_store.options.limits_of(queue)
        if limits is not None and limits.rate is not None and prefetch > max(limits.rate, limits.burst):
            ahead.append(f"{queue} ({prefetch:,} messages, {limits.rate:g} a second)")
    if ahead:
        yield Finding(
            Level.NOTICE,
            f"workers may hold more messages of a queue at once than its transfer_rate lets go in a second: "
            f"{named(ahead)}. After a pause they run what they hold as fast as they can",
            "where what they call must not get more, set worker_prefetch_multiplier = 1, run fewer processes, or give "
            "the tasks a rate_limit",
            "how-to/queues.md#smooth-a-flood",
        )


def long_tasks(subject: Subject) -> Findings:
    """Do tasks end before another worker gets them, too?"""
    long = []
    for worker in subject.the_workers:
        if not worker.fetches:
            now_s = time() if worker.clock_s is None else worker.clock_s
            limit_s = float(worker.options.get("visibility_timeout", 3600))
            long += [f"{name} in {worker.name}" for name, since_s in worker.running if now_s - since_s > limit_s]
    if long:
        yield Finding(
            Level.ERROR,
            f"{counted(len(long), 'task has', 'tasks have')} been running for longer than visibility_timeout: "
            f"{named(long)}. What is acknowledged late runs a second time meanwhile",
            "raise visibility_timeout above the longest task, or switch to consume='reliable', which has none",
            "how-to/outage.md#of-stock-workers",
        )


def _shown(worker: Worker) -> str:
    release = worker.versions.get("kombu_delayq")
    what = f"kombu-delayq {release}" if release else f"{worker.transport or 'unknown transport'}"
    return f"{worker.name} ({what})"
