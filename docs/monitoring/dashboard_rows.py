"""The rows that each dashboard fills: what waits, comes, is delivered, and is held back."""

from dashboard_panels import (
    GREEN,
    OF_JOB,
    OF_QUEUE,
    ORANGE,
    RED,
    by_queue,
    due_bars,
    figure,
    lateness_map,
    lines,
    quantile,
    query,
    rate_by_queue,
    steps,
)
from grafana_foundation_sdk.builders.dashboard import Dashboard, Row


def now(board: Dashboard) -> Dashboard:
    """Adds the row of single numbers."""
    total = "sum({})".format
    leads = {"1": ("leads", GREEN), "0": ("nobody", RED)}
    reached = {"1": ("up", GREEN), "0": ("away", RED)}
    many = steps(base="text")
    for panel in (
        figure("Redis", f"max(delayq_redis_up{OF_JOB})", "Whether an exporter reaches it.", steps(), words=reached),
        figure(
            "Transfer", f"max(delayq_leader_present{OF_JOB})", "Whether a transfer worker leads.", steps(), words=leads
        ),
        figure("Delayed", total(by_queue("delayq_delayed_messages")), "Tasks that wait for their time.", many),
        figure("Ready", total(by_queue("delayq_ready_messages")), "Tasks that wait for a worker.", many),
        figure("In hand", total(by_queue("delayq_unacked_messages")), "Tasks that workers have.", many),
        figure(
            "Overdue by",
            f"max(delayq_overdue_seconds{OF_QUEUE})",
            "How long the oldest task has been due that is not delivered.",
            steps((1, ORANGE), (5, RED)),
            unit="s",
        ),
        figure(
            "Next due in",
            f"min(delayq_next_due_timestamp_seconds{OF_QUEUE}) - time()",
            "Time until the next delayed task is due.",
            many,
            unit="s",
        ),
        figure(
            "Dead letters",
            total(by_queue("delayq_dead_letter_messages")),
            "Tasks that have failed for good.",
            steps((1, ORANGE), base="text"),
        ),
    ):
        board = board.with_panel(panel)
    return board


def ways(board: Dashboard) -> Dashboard:
    """Adds the rows of what comes, what is delivered, what workers have, and what went another way."""
    return (
        board.with_row(Row("What comes"))
        .with_panel(due_bars())
        .with_panel(
            lines(
                "Delayed, by queue",
                "Tasks that wait for their time.",
                query(by_queue("delayq_delayed_messages"), "{{queue}}"),
            )
        )
        .with_row(Row("Delivery"))
        .with_panel(
            lines(
                "Lateness, by queue",
                "Half of the tasks were delivered sooner than p50, 99 of 100 sooner than p99.",
                query(quantile(0.5), "{{queue}} p50"),
                query(quantile(0.99), "{{queue}} p99", ref="B"),
                unit="s",
            )
        )
        .with_panel(lateness_map())
        .with_panel(
            lines(
                "Delivered, by queue",
                "Tasks per second that came due and went to their queue.",
                query(rate_by_queue("delayq_transferred_messages_total"), "{{queue}}"),
                unit="ops",
            )
        )
        .with_panel(
            lines(
                "Overdue, by queue",
                "How long the oldest task has been due that is not delivered.",
                query(by_queue("delayq_overdue_seconds"), "{{queue}}"),
                unit="s",
            )
        )
        .with_row(Row("Workers"))
        .with_panel(
            lines(
                "Ready, by queue",
                "Tasks that wait for a worker.",
                query(by_queue("delayq_ready_messages"), "{{queue}}"),
            )
        )
        .with_panel(
            lines(
                "Waits for a worker, by queue",
                "How long the oldest ready task has been waiting, and what 95 of 100 waited until a worker took them.",
                query(by_queue("delayq_oldest_ready_seconds"), "{{queue}} oldest"),
                query(quantile(0.95, "delayq_queue_wait_seconds_bucket"), "{{queue}} p95", ref="B"),
                unit="s",
            )
        )
        .with_panel(
            lines(
                "In hand, by queue",
                "Tasks that workers have and have not acknowledged.",
                query(by_queue("delayq_unacked_messages"), "{{queue}}"),
            )
        )
        .with_panel(
            lines(
                "Consumers, by queue",
                "Connections of workers that consume the queue.",
                query(by_queue("delayq_consumers"), "{{queue}}"),
            )
        )
        .with_panel(
            lines(
                "Paused, by queue",
                "1 while somebody keeps workers from the queue.",
                query(by_queue("delayq_queue_paused"), "{{queue}}"),
            )
        )
        .with_panel(
            lines(
                "Failures, by queue",
                "Tasks per minute that are to be tried again, have failed for good, or became dead letters.",
                query(f"60 * {rate_by_queue('delayq_failures_total', 'outcome')}", "{{queue}} {{outcome}}"),
            )
        )
        .with_row(Row("What went another way"))
        .with_panel(
            lines(
                "Changed by people and programs",
                "Tasks per second that were cancelled, rescheduled, run at once, purged, replayed or dropped.",
                query(f"sum by (operation) ({rate_by_queue('delayq_operations_total', 'operation')})", "{{operation}}"),
                unit="ops",
                span=8,
            )
        )
        .with_panel(
            lines(
                "Delivered again, and lost",
                "Tasks per hour that came back from dead workers, and that had lost their message.",
                query(
                    f"max by (queue) (increase(delayq_redelivered_messages_total{OF_QUEUE}[1h]))",
                    "{{queue}} again",
                ),
                query(
                    f"max by (queue) (increase(delayq_lost_messages_total{OF_QUEUE}[1h]))", "{{queue}} lost", ref="B"
                ),
                span=8,
            )
        )
        .with_panel(
            lines(
                "Dead letters, by queue",
                "Tasks that have failed for good.",
                query(by_queue("delayq_dead_letter_messages"), "{{queue}}"),
                span=8,
            )
        )
    )


def late_and_held_back(board: Dashboard) -> Dashboard:
    """Adds the row of what a rate holds back, and of what was too late to run."""
    dropped = f"max by (queue, outcome) (increase(delayq_too_late_messages_total{OF_QUEUE}[1h]))"
    return (
        board.with_row(Row("Late and held back"))
        .with_panel(
            lines(
                "Held back, by queue",
                "Overdue tasks that the rate of their queue (transfer_rate) lets through later.",
                query(by_queue("delayq_held_back_messages"), "{{queue}}"),
            )
        )
        .with_panel(
            lines(
                "Too late, by queue",
                "Tasks per hour that were later than max_lateness, and so were dropped or became dead letters.",
                query(dropped, "{{queue}} {{outcome}}"),
            )
        )
    )


def limits(board: Dashboard) -> Dashboard:
    """Adds the row of limits by key, which is empty without limits."""
    waiting, running = (
        f"max by (queue, limit) (delayq_limit_{name}{OF_QUEUE})" for name in ("waiting_messages", "running_tasks")
    )
    resting = query(by_queue("delayq_limit_resting_keys"), "{{queue}} resting", ref="B")
    board = board.with_row(Row("Limits by key"))
    for panel in (
        lines("Running, by limit", "Places that tasks take.", query(running, "{{queue}} {{limit}}")),
        lines("Waiting, by limit", "Tasks in sub-queues.", query(waiting, "{{queue}} {{limit}}")),
        lines(
            "Limited, by queue",
            "Ready tasks that may not go now. More workers would not run them sooner.",
            query(by_queue("delayq_limited_messages"), "{{queue}}"),
        ),
        lines(
            "Keys, by queue",
            "Keys of which a task may go now, and keys that rest.",
            query(by_queue("delayq_limit_free_keys"), "{{queue}} free"),
            resting,
        ),
    ):
        board = board.with_panel(panel)
    return board


def periodic(board: Dashboard) -> Dashboard:
    """Adds the row of periodic tasks, which is empty without entries."""
    arms = {"1": ("armed", GREEN), "0": ("nobody", RED)}
    since, until = (
        f"max by (entry) (delayq_periodic_{name}_seconds{OF_JOB})" for name in ("since_last_run", "until_next_run")
    )
    board = board.with_row(Row("Periodic tasks"))
    for panel in (
        figure(
            "Armed",
            f"max(delayq_periodic_armer_present{OF_JOB})",
            "Whether a process arms the runs that come next.",
            steps(),
            words=arms,
        ),
        figure(
            "Wrong entries",
            f"sum(max by (entry) (delayq_periodic_wrong{OF_JOB}))",
            "Entries that cannot be sent.",
            steps((1, ORANGE), base="text"),
        ),
        lines("Next run, by entry", "Below 0 a run is overdue.", query(until, "{{entry}}"), unit="s"),
        lines("Last run, by entry", "How long ago the last run was due.", query(since, "{{entry}}"), unit="s"),
    ):
        board = board.with_panel(panel)
    return board
