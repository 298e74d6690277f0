"""The rows of the servers behind the queues: the journal's database, and the nodes of a Redis Cluster."""

from dashboard_panels import (
    GREEN,
    OF_JOB,
    OF_QUEUE,
    ORANGE,
    RED,
    figure,
    lines,
    query,
    steps,
)
from grafana_foundation_sdk.builders.dashboard import Dashboard, Row


def journal(board: Dashboard) -> Dashboard:
    """Adds the row of the journal, which is empty without one."""
    reached = {"1": ("up", GREEN), "0": ("away", RED)}
    promotes = {"1": ("promotes", GREEN), "0": ("nobody", RED)}
    lost = {"0": ("nothing", GREEN), "1": ("lost", RED)}
    many = steps(base="text")
    waiting = '{job=~"$job", queue=~"$queue", state="waiting"}'
    board = board.with_row(Row("Journal"))
    for panel in (
        figure("Database", f"max(delayq_journal_up{OF_JOB})", "Whether it answers.", many, words=reached),
        figure(
            "Promoter",
            f"max(delayq_journal_promoter_present{OF_JOB})",
            "Whether a process promotes.",
            many,
            words=promotes,
        ),
        figure(
            "Redis has lost",
            f"max(delayq_journal_lost{OF_JOB})",
            "Whether Redis has lost data that is not restored: delayq journal restore.",
            many,
            words=lost,
        ),
        figure(
            "Promotion is behind by",
            f"max(delayq_journal_promotion_lag_seconds{OF_JOB})",
            "For how long the oldest task has been waiting that should be in Redis by now.",
            steps((60, ORANGE), (1800, RED)),
            unit="s",
        ),
        figure(
            "Only in the journal",
            f"sum(max by (queue) (delayq_journal_messages{waiting}))",
            "Tasks that Redis is given when they are near.",
            many,
            span=4,
        ),
        figure(
            "Size", f"max(delayq_journal_size_bytes{OF_JOB})", "Tables and their indexes.", many, unit="bytes", span=4
        ),
        figure(
            "Watermark",
            f"max(delayq_journal_watermark_age_seconds{OF_JOB})",
            "Age of the note of what has left Redis. After a loss, what was delivered in this time runs again.",
            steps((10, ORANGE), (60, RED)),
            unit="s",
            span=4,
        ),
        lines(
            "In the journal, by queue",
            "Tasks that only the journal has.",
            query(f"max by (queue) (delayq_journal_messages{waiting})", "{{queue}}"),
        ),
        lines(
            "Promoted and restored",
            "Tasks per second that went from the journal to Redis, and that wait again after a loss.",
            query(f"max(rate(delayq_journal_promoted_messages_total{OF_JOB}[$__rate_interval]))", "promoted"),
            query(f"max(rate(delayq_journal_restored_messages_total{OF_JOB}[$__rate_interval]))", "restored", ref="B"),
            unit="ops",
        ),
    ):
        board = board.with_panel(panel)
    return board


def cluster(board: Dashboard) -> Dashboard:
    """Adds the row of a Redis Cluster's nodes, which is empty on a server without hash slots."""
    up = f"max by (node) (delayq_cluster_node_up{OF_JOB})"
    at = f"max by (node, queue) (delayq_cluster_queue_slot{OF_QUEUE})"
    board = board.with_row(Row("Cluster"))
    for panel in (
        figure(
            "Nodes down",
            f"count({up}) - sum({up})",
            "Nodes that do not answer, that the others have given up, or that have lost their primary.",
            steps((1, ORANGE)),
            span=4,
        ),
        figure(
            "Slots without a node",
            f"max(delayq_cluster_uncovered_slots{OF_JOB})",
            "Hash slots that no living node serves.",
            steps((1, RED)),
            span=4,
        ),
        figure(
            "Queues without a node",
            f"count({at}) - (count({at} and on (node) {up} == 1) or vector(0))",
            "Queues whose node does not answer: they can be neither published to nor consumed.",
            steps((1, RED)),
            span=4,
        ),
        figure(
            "Replicas are behind by",
            f"max(max by (node) (delayq_cluster_replica_lag_bytes{OF_JOB}))",
            "What a failover of the worst primary would lose now.",
            steps((1_000_000, ORANGE)),
            unit="bytes",
            span=6,
        ),
        figure(
            "Nodes",
            f"count({up})",
            "Primaries and replicas.",
            steps(base="text"),
            span=6,
        ),
        lines(
            "Queues, by node",
            "Queues whose hash slot the node serves. After a failover they are with another node.",
            query(f"count by (node) ({at})", "{{node}}"),
            span=8,
        ),
        lines(
            "Memory, by node",
            "Memory that a node uses.",
            query(f"max by (node) (delayq_cluster_node_memory_bytes{OF_JOB})", "{{node}}"),
            unit="bytes",
            span=8,
        ),
        lines(
            "Lag, by replica",
            "How far a replica is behind its primary.",
            query(f"max by (node) (delayq_cluster_replica_lag_bytes{OF_JOB})", "{{node}}"),
            unit="bytes",
            span=8,
        ),
    ):
        board = board.with_panel(panel)
    return board
