"""The check of limits by key, whether they hold for all and what is noted of keys is right; and the alert."""

from collections import defaultdict
from itertools import islice

from celery_ext.doctor import REDIS, Alert, Check, Finding, Findings, Level, Subject, counted, named
from celery_ext.limits.mending import miscounted_keys, stray_places
from celery_ext.limits.store import LimitStore

#: How many keys of a queue are looked at.
LOOKED = 1000
_PAGE = "how-to/doctor.md#limits-by-key"


def limits(subject: Subject) -> Findings:
    """Do limits by key hold for all workers, is each limit declared, and is each place that is taken in hand?"""
    store = subject.the_store
    queues = sorted(store.part(LimitStore).queues())
    if not queues:
        return
    yield from _passing_by(subject, queues)
    yield from _undeclared(subject, queues)
    if found := stray_places(store):
        yield Finding(
            Level.WARNING,
            f"{counted(sum(found.values()), 'place', 'places')} of keys are taken by consumers that are gone: "
            f"{named(sorted(found))}",
            "`delayq repair` gives them back",
            _PAGE,
        )
    wrong = {queue: keys for queue in queues if (keys := miscounted_keys(store, queue, LOOKED))}
    if wrong:
        yield Finding(
            Level.WARNING,
            f"the number of running tasks is noted wrongly of keys in {counted(len(wrong), 'queue', 'queues')}: "
            f"{named([f'{key} ({queue})' for queue, keys in wrong.items() for key in keys])}",
            "`delayq repair` corrects it",
            _PAGE,
        )


def _passing_by(subject: Subject, queues: list[str]) -> Findings:
    """Finds workers that take messages of queues with limits, and know none."""
    passing = [
        worker.name
        for worker in subject.workers or ()
        if not worker.fetches and not {*queues}.isdisjoint(worker.queues)
    ]
    if passing:
        yield Finding(
            Level.WARNING,
            f"{counted(len(passing), 'worker passes by', 'workers pass by')} limits by key, on the stock transport or "
            f"with consume='brpop': {named(passing)}. Such a worker does not get what waits for the turn of its key",
            "set broker_transport, and consume='reliable', in its app, and restart it",
            _PAGE,
        )


def _undeclared(subject: Subject, queues: list[str]) -> Findings:
    """Finds keys of limits that nobody declares."""
    part, found = subject.the_store.part(LimitStore), defaultdict[str, set[str]](set)
    for queue in queues:
        known = part.limits(queue)
        for state in islice(part.keys(queue), LOOKED):
            if state.key and known.of(state.key) is None:
                found[state.key.partition(":")[0]].add(queue)
    if found:
        shown = named([f"{name} ({', '.join(sorted(of))})" for name, of in sorted(found.items())])
        yield Finding(
            Level.WARNING,
            f"messages have keys of {counted(len(found), 'limit', 'limits')} that no worker declares: {shown}. These "
            "only take turns",
            "declare it in the transport option limits of all workers, or mend its name where tasks are sent",
            _PAGE,
        )


#: What this feature brings to `delayq doctor`.
CHECKS = (Check("limits", limits, REDIS, asks=True),)
ALERTS = (
    Alert(
        "DelayqLimitStands",
        "consumers",
        Level.WARNING,
        (
            "max by (job, namespace, queue) (delayq_limited_messages) > 0 and on (job, namespace, queue) "
            "max by (job, namespace, queue) (changes(delayq_limited_messages[15m])) == 0 "
            "unless on (job, namespace, queue) sum by (job, namespace, queue) "
            "(max by (job, namespace, queue, limit) (delayq_limit_running_tasks)) > 0"
        ),
        "Tasks of queue {{ $labels.queue }} wait for a limit, and none runs.",
        (
            "For 15 minutes {{ $value }} tasks of queue {{ $labels.queue }} have not been allowed to run by their "
            "limits, although no task with a limit ran: somebody has paused their keys, or these rest."
        ),
        lasts="15m",
    ),
)
