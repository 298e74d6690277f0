"""What Prometheus watches: the conditions of the checks, as rules on the metrics."""

from collections.abc import Iterator
from dataclasses import dataclass

from celery_ext import health
from celery_ext.features import modules_of
from celery_ext.health import Level


@dataclass(frozen=True)
class Alert:
    """A rule. Each takes the largest value of all exporters of one Redis, so any number of them may run.

    Attributes:
        name: Its name. The page ``how-to/monitoring.md`` has a section of this name, which says what to do.
        check: The check that looks for the same.
        level: How bad it is.
        expr: When it fires, in PromQL.
        summary: What is wrong, as a template of Prometheus.
        description: The same with what was measured.
        lasts: How long that has to last, such as ``5m``; empty to fire at once.
    """

    name: str
    check: str
    level: Level
    expr: str
    summary: str
    description: str
    lasts: str = ""


#: Ready messages that no limit by key holds back.
_MAY_GO = (
    "(max by (job, namespace, queue) (delayq_ready_messages) - on (job, namespace, queue) "
    "max by (job, namespace, queue) (delayq_limited_messages))"
)
#: Those of the doctor itself.
ALERTS = (
    Alert(
        "DelayqExporterAbsent",
        "broker",
        Level.WARNING,
        "absent(delayq_redis_up)",
        "No metrics of delayed tasks arrive.",
        (
            "Prometheus has no series delayq_redis_up: the exporter does not run, or is not scraped. No other "
            "alert on delayed delivery can fire until it is back."
        ),
        lasts="2m",
    ),
    Alert(
        "DelayqRedisDown",
        "broker",
        Level.ERROR,
        "max by (job, namespace) (delayq_redis_up) == 0",
        "No exporter reaches Redis.",
        (
            "No exporter of {{ $labels.job }} has reached Redis for a minute. If workers do not reach it either, "
            "nothing is published and nothing is delivered."
        ),
        lasts="1m",
    ),
    Alert(
        "DelayqNoLeader",
        "leader",
        Level.ERROR,
        "max by (job, namespace) (delayq_leader_present) == 0",
        "Nobody transfers delayed tasks.",
        (
            "No transfer worker has led for a minute, as seen by {{ $labels.job }}. Tasks that come due stay in "
            "the store until one runs."
        ),
        lasts="1m",
    ),
    Alert(
        "DelayqOverdue",
        "leader",
        Level.ERROR,
        (
            f"max by (job, namespace, queue) (delayq_overdue_seconds) > {health.OVERDUE_S:g} "
            "unless on (job, namespace, queue) max by (job, namespace, queue) (delayq_held_back_messages) > 0"
        ),
        "Tasks of queue {{ $labels.queue }} are overdue.",
        (
            "The oldest overdue task of queue {{ $labels.queue }} has been due for {{ $value | humanizeDuration "
            "}}, and has not been delivered."
        ),
        lasts="1m",
    ),
    Alert(
        "DelayqLatenessHigh",
        "leader",
        Level.WARNING,
        (
            "histogram_quantile(0.99, max by (job, namespace, queue, le) "
            "(rate(delayq_delivery_lateness_seconds_bucket[5m]))) > 1"
        ),
        "Tasks of queue {{ $labels.queue }} are delivered late.",
        (
            "In the last 5 minutes, 1 of 100 tasks of queue {{ $labels.queue }} was delivered more than {{ $value "
            "| humanizeDuration }} after it was due."
        ),
        lasts="5m",
    ),
    Alert(
        "DelayqLostBodies",
        "eviction",
        Level.ERROR,
        "max by (job, namespace, queue) (increase(delayq_lost_messages_total[15m])) > 0",
        "Tasks of queue {{ $labels.queue }} are lost.",
        (
            "In the last 15 minutes about {{ $value | humanize }} delayed tasks of queue {{ $labels.queue }} came "
            "due without a message. Something has deleted fields of a key of kombu-delayq."
        ),
    ),
    Alert(
        "DelayqNoConsumer",
        "consumers",
        Level.WARNING,
        (
            "max by (job, namespace, queue) (delayq_ready_messages) > 0 and on (job, namespace, queue) max by "
            "(job, namespace, queue) (delayq_consumers) == 0 unless on (job, namespace, queue) max by (job, "
            "namespace, queue) (delayq_unacked_messages) > 0 unless on (job, namespace, queue) max by (job, "
            "namespace, queue) (delayq_dead_letter_messages)"
        ),
        "Nobody consumes queue {{ $labels.queue }}.",
        (
            "{{ $value }} tasks of queue {{ $labels.queue }} are ready, and for 5 minutes no known consumer has "
            "been there, and none has had a task of it in hand."
        ),
        lasts="5m",
    ),
    Alert(
        "DelayqReadyGrows",
        "consumers",
        Level.WARNING,
        (
            f"min_over_time({_MAY_GO}[10m:1m]) > max_over_time({_MAY_GO}[10m:1m] offset 20m) + 100 "
            "unless on (job, namespace, queue) max by (job, namespace, queue) (delayq_dead_letter_messages)"
        ),
        "More tasks of queue {{ $labels.queue }} are ready than workers run.",
        (
            "At least {{ $value }} tasks of queue {{ $labels.queue }} have been ready for 10 minutes, 100 more "
            "than at any time from 30 to 20 minutes before: workers do not keep up."
        ),
        lasts="10m",
    ),
    Alert(
        "DelayqQueueWait",
        "consumers",
        Level.WARNING,
        (
            f"max by (job, namespace, queue) (delayq_oldest_ready_seconds) > {health.WAITS_S:g} "
            "unless on (job, namespace, queue) max by (job, namespace, queue) (delayq_dead_letter_messages)"
        ),
        "Tasks of queue {{ $labels.queue }} wait long for a worker.",
        (
            "The oldest ready task of queue {{ $labels.queue }} has been waiting for a worker for {{ $value | "
            "humanizeDuration }}."
        ),
        lasts="2m",
    ),
    Alert(
        "DelayqQueuePaused",
        "paused",
        Level.WARNING,
        "max by (job, namespace, queue) (delayq_queue_paused) == 1",
        "Queue {{ $labels.queue }} is paused.",
        "Workers have taken nothing from queue {{ $labels.queue }} for an hour, for somebody has paused it.",
        lasts="1h",
    ),
    Alert(
        "DelayqClusterNodeDown",
        "broker",
        Level.WARNING,
        "max by (job, namespace, node) (delayq_cluster_node_up) == 0",
        "Node {{ $labels.node }} of the Redis Cluster is down.",
        (
            "Node {{ $labels.node }} does not answer any exporter of {{ $labels.job }}, was given up by the other "
            "nodes, or is a replica that has lost its primary. Until it is back, the next failure may cost "
            "messages."
        ),
        lasts="2m",
    ),
    Alert(
        "DelayqClusterSlotsUncovered",
        "broker",
        Level.ERROR,
        "max by (job, namespace) (delayq_cluster_uncovered_slots) > 0",
        "Hash slots of the Redis Cluster are served by nobody.",
        (
            "{{ $value }} hash slots of the cluster of {{ $labels.job }} have no living node. Queues in them can "
            "be neither published to nor consumed."
        ),
        lasts="1m",
    ),
    Alert(  # a queue whose slot belongs to no node at all has the node ''
        "DelayqClusterQueueAway",
        "queues",
        Level.ERROR,
        (
            "max by (job, namespace, queue, node) (delayq_cluster_queue_slot) unless on (job, namespace, node) "
            "max by (job, namespace, node) (delayq_cluster_node_up) == 1"
        ),
        "The node of queue {{ $labels.queue }} is away.",
        (
            "Hash slot {{ $value }}, in which queue {{ $labels.queue }} is, has no node that answers {{- with "
            "$labels.node }}; it belongs to {{ . }}{{ end }}. The queue can be neither published to nor consumed."
        ),
        lasts="1m",
    ),
)


def all_alerts() -> Iterator[Alert]:
    """Yields all alerts; a feature brings its own beside its checks, as ``ALERTS``."""
    yield from ALERTS
    for module in modules_of("checks", but="doctor"):
        yield from getattr(module, "ALERTS", ())
