"""The checks of the journal: its options, its database, and who promotes."""

from typing import TYPE_CHECKING, cast

from celery_ext.doctor import APP, REDIS, Alert, Check, Finding, Findings, Level, Subject

if TYPE_CHECKING:
    from celery_ext.journal.state import JournalState

_PROMOTION = "troubleshooting.md#nobody-promotes-or-promotion-is-behind"


def horizon(subject: Subject) -> Findings:
    """Is the journal's horizon well above its lead?"""
    options = subject.options
    if options.journal_url and options.journal_horizon <= 2 * options.journal_lead:
        yield Finding(
            Level.WARNING,
            f"journal_horizon={options.journal_horizon:g} is not well above journal_lead={options.journal_lead:g}: "
            "messages go to the database and come back at once",
            "raise journal_horizon",
            "how-to/journal.md",
        )


def journal(subject: Subject) -> Findings:
    """Does the database of the journal answer, and has Redis lost nothing?"""
    state = cast("JournalState | None", subject.reading.beside)
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
    if state.fault in ("other", "elsewhere"):
        found = state.leader or "Redis belongs to another journal, so nothing is promoted"
        yield Finding(Level.ERROR, found, "correct journal_url or the broker", _PROMOTION)
        return
    if state.has_lost:
        yield Finding(
            Level.ERROR,
            "Redis has lost data",
            "`celery -A app delayq journal restore` brings back what the journal had given to it"
            + (" and, as journal is 'all', whatever has waited" if state.option == "all" else ""),
            "troubleshooting.md#redis-has-lost-its-data",
        )
    if state.promoter is None:
        level = Level.ERROR if state.waiting else Level.WARNING
        start = subject.start("a worker with the option journal_url")
        yield Finding(level, "nobody promotes messages from the journal", start, _PROMOTION)


CHECKS = (Check("journal-horizon", horizon, APP), Check("journal", journal, REDIS))
ALERTS = (
    Alert(
        "DelayqJournalLost",
        "journal",
        Level.ERROR,
        "max by (job, namespace) (delayq_journal_lost) == 1",
        "Redis has lost delayed tasks.",
        (
            "Redis of {{ $labels.job }} is empty or was set back to older data. The journal has what it lost; "
            "nobody has restored it yet."
        ),
    ),
    Alert(
        "DelayqJournalDown",
        "journal",
        Level.ERROR,
        "max by (job, namespace) (delayq_journal_up) == 0",
        "The database of the journal does not answer.",
        (
            "No exporter of {{ $labels.job }} has reached the database of the journal for a minute. Tasks that "
            "are due late cannot be published, and those that wait there are late once it has been away for "
            "journal_lead."
        ),
        lasts="1m",
    ),
    Alert(
        "DelayqJournalNotPromoted",
        "journal",
        Level.ERROR,
        (
            "max by (job, namespace) (delayq_journal_promoter_present) == 0 or max by (job, namespace) "
            "(delayq_journal_promotion_lag_seconds) > 60"
        ),
        "Tasks of the journal do not reach Redis.",
        (
            "Nobody promotes tasks from the journal of {{ $labels.job }} to Redis, or whoever does it is behind. "
            "They are late once that has gone on for journal_lead."
        ),
        lasts="2m",
    ),
)
