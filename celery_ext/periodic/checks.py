"""The check of periodic entries: who sends them, and whether they can run."""

from collections.abc import Sequence
from typing import Any

from celery_ext.doctor import REDIS, Alert, Check, Finding, Findings, Level, Subject, counted, named
from celery_ext.periodic import is_periodic
from celery_ext.periodic.control import Listed, list_entries
from celery_ext.periodic.entries import Entries
from celery_ext.periodic.source import source_of
from celery_ext.periodic.store import OTHER_SCHEDULE, STOCK_BEAT, PeriodicStore

#: How long ago a worker may have seen something of others that the doctor still reports, in ms.
SEEN_MS = 900_000
_PAGE = "how-to/periodic.md#when-something-is-wrong"


def periodic(subject: Subject) -> Findings:
    """Can periodic tasks run, and are they sent, by one schedule, and by nobody else?"""
    store, listed = subject.the_store, list_entries(subject.the_store)
    source = None if subject.app is None else source_of(subject.app)
    own = Entries({}, {}, {}) if source is None or source.changes else source.read() or Entries({}, {}, {})
    yield from _unsent(subject, listed, own)
    if wrong := {entry.name: entry.error for entry in listed if entry.error} | own.wrong:
        found = f"periodic entries that cannot be sent: {_with(wrong)}"
        yield Finding(Level.ERROR, found, "mend them, and start the workers anew", _PAGE)
    yield from _unknown(subject, {entry.name: entry.task for entry in listed if entry.task}, own)
    if listed and source is not None and (overwritten := source.overwritten()):
        found = f"entries were changed in the admin, and beat_schedule takes that back: {named(overwritten)}"
        yield Finding(Level.WARNING, found, "change them in the settings, or take them out there", _PAGE)
    sightings, recent_ms = store.part(PeriodicStore).sightings(), store.now_ms() - SEEN_MS
    if sightings.get(OTHER_SCHEDULE, 0) > recent_ms:
        found = "workers that run have another periodic schedule than the one that started last, which arms alone"
        if own.entries and (unlike := own.unlike(store.part(PeriodicStore).records())):
            found = f"{found}. Its entries differ from those of this app: {named(unlike)}"
        yield Finding(
            Level.WARNING, found, "end the deploy, mend the entry, or give each app a global_keyprefix", _PAGE
        )
    if sightings.get(STOCK_BEAT, 0) > recent_ms:
        found = "a stock beat sends periodic tasks beside the workers: each run may come twice"
        yield Finding(Level.WARNING, found, "end it, or give it our beat_scheduler", _PAGE)


def _unsent(subject: Subject, listed: Sequence[Listed], own: Entries) -> Findings:
    """Finds entries that nobody arms, or that only a stock beat would send."""
    app: Any = subject.app
    conf = None if app is None else app.conf
    by_beat = conf is not None and str(conf.beat_scheduler).startswith("celery_ext.periodic")
    arms = app is not None and (by_beat or is_periodic(app))
    entries = listed or (own.entries if arms else ())
    if entries and subject.the_store.part(PeriodicStore).leader() is None:
        found = f"no process arms the {counted(len(entries), 'periodic entry', 'periodic entries')}"
        do = "start `celery beat`" if by_beat else "start a worker of the app with install(app, periodic=True)"
        yield Finding(Level.ERROR, found, do, _PAGE)
    elif conf is not None and conf.beat_schedule and not listed and not arms:
        entry = counted(len(conf.beat_schedule), "entry", "entries")
        yield Finding(
            Level.NOTICE,
            f"nothing but a `celery beat` sends the {entry} of beat_schedule, and no check sees whether one runs",
            "see that one runs, or call install(app, periodic=True), with which the workers send them",
            "how-to/periodic.md",
        )


def _unknown(subject: Subject, armed: dict[str, str], own: Entries) -> Findings:
    """Finds entries whose task does not exist, where the tasks of the app are known."""
    if subject.app is None or not subject.has_tasks:
        return
    tasks = armed | {name: entry.task for name, entry in own.entries.items()}
    if unknown := {name: task for name, task in sorted(tasks.items()) if task not in subject.app.tasks}:
        yield Finding(
            Level.WARNING,
            f"periodic entries whose task the app does not have: {_with(unknown)}",
            "mend the name, or let the app import the module of the task, by imports or include",
            _PAGE,
        )


def _with(entries: dict[str, str]) -> str:
    return named([f"{name} ({what})" for name, what in entries.items()])


#: What this feature brings to `delayq doctor`.
CHECKS = (Check("periodic", periodic, REDIS),)
ALERTS = (
    Alert(
        "DelayqPeriodicNotRun",
        "periodic",
        Level.ERROR,
        "-max by (job, namespace, entry) (delayq_periodic_until_next_run_seconds) > 60",
        "The periodic task {{ $labels.entry }} has not run.",
        "The run of entry {{ $labels.entry }} was due {{ $value | humanizeDuration }} ago, and still waits.",
        lasts="1m",
    ),
    Alert(
        "DelayqPeriodicNotArmed",
        "periodic",
        Level.ERROR,
        "max by (job, namespace) (delayq_periodic_armer_present) == 0",
        "No process arms periodic tasks.",
        "For 2 minutes nobody has armed periodic entries. Each ends after the runs that are armed.",
        lasts="2m",
    ),
)
