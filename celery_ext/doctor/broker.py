"""Checks of what waits at a broker, and of who is there to move it on."""

from collections.abc import Mapping

from celery_ext.delays.durations import in_words
from celery_ext.doctor.finding import Finding, Findings, Level, counted, named
from celery_ext.doctor.subject import Subject


def leader(subject: Subject) -> Findings:
    """Does a transfer worker lead, and keep up?"""
    store = subject.the_store
    if store.leases.leader() is None:
        delayed = sum(stats.delayed for stats in subject.overview)
        yield Finding(
            Level.ERROR if delayed else Level.WARNING,
            "no transfer worker runs: nothing that is due will be delivered"
            + (f", and {counted(delayed, 'message waits', 'messages wait')}" if delayed else ""),
            "start a worker with kombu-delayq, or `celery -A app delayq transfer`",
            "troubleshooting.md#status-shows-no-leader",
        )
        return
    lease_ms = store.options.lease_ttl * 1000
    late = [
        stats
        for stats in subject.overview
        if stats.overdue and stats.overdue_ms > 2 * lease_ms and store.options.limits_of(stats.queue) is None
    ]
    if late:
        by = in_words(max(stats.overdue_ms for stats in late) / 1000, plain=True)
        yield Finding(
            Level.WARNING,
            f"a transfer worker leads, and messages are overdue by up to {by}: "
            f"{named([stats.queue for stats in late])}",
            "look for errors in the log of the leading transfer worker",
            "troubleshooting.md#a-task-is-late",
        )


def consumers(subject: Subject) -> Findings:
    """Does somebody consume each queue that has messages?"""
    store = subject.the_store
    letters = set(store.figures.dead_letter_queues())
    consumed = {queue for lease in store.consumers.all() if lease.left_ms > 0 for queue in lease.queues}
    if subject.workers is not None:
        consumed |= {queue for worker in subject.workers for queue in worker.queues}
    consumed |= store.figures.held().keys() | letters
    looked_at = [*subject.overview, *subject.unknown_to_app]
    idle = [stats for stats in looked_at if (stats.ready or stats.overdue) and stats.queue not in consumed]
    if idle:
        count = sum(stats.ready + stats.overdue for stats in idle)
        yield Finding(
            Level.WARNING,
            f"{counted(count, 'message is', 'messages are')} ready or due, and no consumer is known: "
            f"{named([stats.queue for stats in idle])}",
            "start a worker with --queues that names them. A stock consumer that is no Celery worker is not known here",
            "troubleshooting.md#nothing-is-delivered",
        )


def unreadable(subject: Subject) -> Findings:
    """Can each queue be read?"""
    for stats in subject.overview:
        if stats.error:
            yield Finding(
                Level.ERROR,
                f"queue {stats.queue!r} cannot be read: {stats.error}",
                "mend what the message names; `delayq repair` shows more",
                "how-to/outage.md#a-key-of-the-wrong-type",
            )


def in_hand(subject: Subject) -> Findings:
    """Is each message in hand in the hands of somebody who is known?"""
    counts = subject.the_store.consumers.counts()  # first: a consumer is known before it takes messages
    known = {lease.name for lease in subject.the_store.consumers.all()}
    lost = {name: count for name, count in counts.items() if count and name and name not in known}
    if lost:
        holders = "a consumer" if len(lost) == 1 else "consumers"
        yield Finding(
            Level.WARNING,
            f"{counted(sum(lost.values()), 'message is', 'messages are')} in the hands of {holders} that nobody knows",
            f"`delayq repair` gives {'it' if sum(lost.values()) == 1 else 'them'} back",
            "how-to/repair-convert.md#repair",
        )


def prefixes(subject: Subject) -> Findings:
    """Is all that waits under the key prefix of the app?"""
    store = subject.the_store
    found = store.queues.other_prefixes()
    # Where transfer workers lead under both, two apps share the database. Else the messages may stay where they are.
    leads = bool(found) and store.leases.leader() is not None
    led = {prefix for prefix in found if leads and store.leases.leads_under(prefix)}
    page = "troubleshooting.md#messages-are-under-another-prefix-or-database"
    own = f"its own is {store.keys.prefix!r}" if store.keys.prefix else "it has none itself"
    if left := {prefix: count for prefix, count in found.items() if prefix not in led}:
        yield Finding(
            Level.WARNING,
            f"delayed messages wait under key prefixes that this app does not see, since {own}: {_by_prefix(left)}",
            "give all processes of an app one global_keyprefix. If they are of another app, start its workers",
            page,
        )
    if led:
        yield Finding(
            Level.NOTICE,
            "delayed messages of others wait in the same database, which this app does not see: "
            + _by_prefix({prefix: found[prefix] for prefix in found if prefix in led}),
            "nothing, if they are of another app. Else give all processes one global_keyprefix",
            page,
        )


def _by_prefix(counts: Mapping[str, int]) -> str:
    return named(
        [f"{count:,} {f'with global_keyprefix {name!r}' if name else 'without one'}" for name, count in counts.items()]
    )


def journal(subject: Subject) -> Findings:
    """Does the database of the journal answer, and has Redis lost nothing?"""
    _, state = subject.journal
    if state is None:
        return
    if state.error:
        yield Finding(
            Level.ERROR,
            f"the database of the journal does not answer: {state.error}",
            "mend it: what waits there is promoted then",
            "troubleshooting.md#the-journals-database-is-away",
        )
        return
    if state.has_lost or state.fault == "other":
        yield Finding(
            Level.ERROR,
            "Redis belongs to another journal" if state.fault == "other" else "Redis has lost data",
            "`celery -A app delayq journal restore` brings back what the journal had given to it"
            + " and, as journal is 'all', whatever has waited" * (state.option == "all"),
            "troubleshooting.md#redis-has-lost-its-data",
        )
    if state.promoter is None:
        yield Finding(
            Level.ERROR if state.waiting else Level.WARNING,
            "nobody promotes messages from the journal",
            "start a worker with the option journal_url, or `celery -A app delayq transfer`",
            "troubleshooting.md#nobody-promotes-or-promotion-is-behind",
        )
