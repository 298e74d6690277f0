"""The check of dead letters: whether they stay where they are, and whether more arrive."""

from celery_ext.dead_letters import routes
from celery_ext.doctor import REDIS, Alert, Check, Finding, Findings, Level, Subject, counted, named


def consumed_letters(subject: Subject) -> Findings:
    """Does no worker consume a queue of dead letters?"""
    store = subject.the_store
    letters = {*store.queues.of_letters(), *(routes.named_by(subject.app) if subject.app is not None else ())}
    consumed = {q for lease in store.consumers.all() if lease.left_ms > 0 and not lease.is_http for q in lease.queues}
    consumed |= {queue for worker in subject.workers or () for queue in worker.queues}
    if found := sorted(letters & consumed):
        yield Finding(
            Level.WARNING,
            f"{counted(len(found), 'queue of dead letters is', 'queues of dead letters are')} consumed, whose messages "
            f"run again at once, and are gone if they fail again: {named(found)}",
            "take it out of --queues, and give a task another dead_letter_queue than the queue in which it runs",
            "how-to/dead-letters.md",
        )


#: What this feature brings to `delayq doctor`.
CHECKS = (Check("dead-letters", consumed_letters, REDIS, asks=True),)
ALERTS = (
    Alert(  # a queue that an exporter did not have an hour ago counts from 0
        "DelayqDeadLettersGrow",
        "dead-letters",
        Level.WARNING,
        (
            "max by (job, namespace, queue) (delayq_dead_letter_messages) - (max by (job, namespace, queue) "
            "(delayq_dead_letter_messages offset 1h) or max by (job, namespace, queue) "
            "(delayq_dead_letter_messages) * 0 and on (job, namespace) max by (job, namespace) (delayq_redis_up "
            "offset 1h) == 1) > 0"
        ),
        "Dead letters arrive in queue {{ $labels.queue }}.",
        (
            "Queue {{ $labels.queue }} has {{ $value | humanize }} dead letters more than an hour ago: tasks that "
            "have failed for good."
        ),
        lasts="5m",
    ),
)
