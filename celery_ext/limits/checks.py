"""The alert on limits by key."""

from celery_ext.doctor import Alert, Check, Level

#: What this feature brings to `delayq doctor`.
CHECKS: tuple[Check, ...] = ()
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
