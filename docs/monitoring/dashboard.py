"""Writes ``dashboard.json`` for Grafana: ``python docs/monitoring/dashboard.py``, with ``--check`` it only looks.

Needs ``grafana-foundation-sdk``. Every expression takes the largest value of all exporters of one Redis, so any number
of exporters may run.
"""

import sys
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, heatmap, stat, timeseries
from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DatasourceVariable,
    QueryVariable,
    Row,
    ThresholdsConfig,
)
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    ReduceDataOptions,
    TimeZoneBrowser,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

TARGET = Path(__file__).with_suffix(".json")
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
OF_JOB, OF_QUEUE = '{job=~"$job"}', '{job=~"$job", queue=~"$queue"}'
#: Bounds of ``delayq_due_within_messages`` in s, as people write them.
WITHIN = {"5": "5 s", "60": "1 min", "300": "5 min", "900": "15 min", "3600": "1 h", "14400": "4 h", "28800": "8 h"}
WITHIN["86400"] = "1 day"
GREEN, ORANGE, RED = "green", "orange", "red"


def by_queue(metric: str, *labels: str) -> str:
    """Returns the expression of a gauge by queue."""
    return f"max by ({', '.join(['queue', *labels])}) ({metric}{OF_QUEUE})"


def rate_by_queue(metric: str, *labels: str) -> str:
    """Returns the expression of a counter's rate by queue, per s."""
    return f"max by ({', '.join(['queue', *labels])}) (rate({metric}{OF_QUEUE}[$__rate_interval]))"


class ReduceOptions(common.ReduceDataOptions):
    """The last value of each query."""

    def build(self) -> ReduceDataOptions:
        return ReduceDataOptions(calcs=["lastNotNull"])


def query(expr: str, legend: str = "__auto", *, now: bool = False, ref: str = "A") -> Dataquery:
    """Returns a query, over the range of time that is shown or of ``now``; queries of one panel differ in ``ref``."""
    made = Dataquery().expr(expr).legend_format(legend).datasource(SOURCE).ref_id(ref)
    return made.instant() if now else made.range()


def steps(*marks: tuple[float, str], base: str = GREEN) -> ThresholdsConfig:
    """Returns colours: ``base``, and from each value on the colour beside it."""
    found = [Threshold(value=None, color=base), *(Threshold(value=value, color=color) for value, color in marks)]
    return ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(found)


def figure(title: str, expr: str, says: str, colours: ThresholdsConfig, **more: Any) -> stat.Panel:
    """Returns one number, as it is now."""
    panel = (
        stat.Panel()
        .title(title)
        .description(says)
        .datasource(SOURCE)
        .with_target(query(expr))
        .reduce_options(ReduceOptions())
        .thresholds(colours)
        .color_mode(BigValueColorMode.VALUE)
        .graph_mode(BigValueGraphMode.AREA if not more.get("words") else BigValueGraphMode.NONE)
        .unit(more.get("unit", "short"))
        .span(more.get("span", 3))
        .height(4)
    )
    if words := more.get("words"):
        results = {value: ValueMappingResult(text=text, color=color) for value, (text, color) in words.items()}
        panel = panel.mappings([ValueMap(options=results)])
    return panel


def lines(title: str, says: str, *queries: Dataquery, unit: str = "short", span: int = 12) -> timeseries.Panel:
    """Returns lines over time, with a table of the last and the largest value."""
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.TABLE).placement(LegendPlacement.BOTTOM)
    panel = (
        timeseries.Panel()
        .title(title)
        .description(says)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .fill_opacity(8)
        .legend(legend.show_legend(True).calcs(["lastNotNull", "max"]))
        .span(span)
        .height(9)
    )
    for each in queries:
        panel = panel.with_target(each)
    return panel


def due_bars() -> bargauge.Panel:
    """Returns bars: how much is due within each span of time."""
    panel = (
        bargauge.Panel()
        .title("Due within")
        .description("Delayed tasks that are due within this time from now, overdue ones among them.")
        .datasource(SOURCE)
        .orientation(VizOrientation.HORIZONTAL)
        .reduce_options(ReduceOptions())
        .thresholds(steps(base="blue"))
        .unit("short")
        .min(0)
        .span(12)
        .height(9)
    )
    for number, (within, name) in enumerate(WITHIN.items()):
        selected = f'{{job=~"$job", queue=~"$queue", within="{within}"}}'
        expr = f"sum(max by (queue) (delayq_due_within_messages{selected}))"
        panel = panel.with_target(query(expr, name, now=True, ref="ABCDEFGH"[number]))
    return panel


def lateness_map() -> heatmap.Panel:
    """Returns how many tasks were delivered how late, over time."""
    expr = f"sum by (le) ({rate_by_queue('delayq_delivery_lateness_seconds_bucket', 'le')})"
    return (
        heatmap.Panel()
        .title("Lateness of all deliveries")
        .description("Tasks per second by how late they were delivered.")
        .datasource(SOURCE)
        .with_target(query(expr, "{{le}}").format(PromQueryFormat.HEATMAP))
        .color(heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Blues").steps(32).exponent(0.5))
        .y_axis(heatmap.YAxisConfig().unit("s"))
        .span(12)
        .height(9)
    )


def quantile(share: float) -> str:
    """Returns the expression of a quantile of the lateness by queue."""
    return f"histogram_quantile({share}, {rate_by_queue('delayq_delivery_lateness_seconds_bucket', 'le')})"


def variables(board: Dashboard) -> Dashboard:
    """Adds what the reader chooses: data source, job and queues."""
    job = (
        QueryVariable("job")
        .label("Job")
        .datasource(SOURCE)
        .query({"query": "label_values(delayq_redis_up, job)", "refId": "job"})
    )
    queue = (
        QueryVariable("queue")
        .label("Queue")
        .datasource(SOURCE)
        .query({"query": 'label_values({__name__=~"delayq_.*", job=~"$job"}, queue)', "refId": "queue"})
    )
    for each in (job, queue):
        each.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)
        each.multi(True).include_all(True).all_value(".*")
    source = DatasourceVariable("datasource").label("Data source").type("prometheus")
    return board.with_variable(source).with_variable(job).with_variable(queue)


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


def dashboard() -> Dashboard:
    """Returns the dashboard."""
    board = (
        Dashboard("Delayed tasks (kombu-delayq)")
        .uid("delayq")
        .description("What waits, when it is due, how late it is delivered, and what was lost.")
        .tags(["celery", "redis", "kombu-delayq"])
        .timezone(TimeZoneBrowser)
        .refresh("30s")
        .time("now-3h", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
    )
    board = now(variables(board).with_row(Row("Now")))
    return cluster(journal(late_and_held_back(ways(board))))


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
                span=8,
            )
        )
        .with_panel(
            lines(
                "In hand, by queue",
                "Tasks that workers have and have not acknowledged.",
                query(by_queue("delayq_unacked_messages"), "{{queue}}"),
                span=8,
            )
        )
        .with_panel(
            lines(
                "Consumers, by queue",
                "Connections of workers that consume the queue.",
                query(by_queue("delayq_consumers"), "{{queue}}"),
                span=8,
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


def text() -> str:
    """Returns the JSON of the dashboard."""
    return JSONEncoder(sort_keys=True, indent=2).encode(dashboard().build()) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        current = TARGET.read_text(encoding="utf-8") == text()
        sys.exit(0 if current else f"{TARGET.name} is not current: run python docs/monitoring/dashboard.py")
    TARGET.write_text(text(), encoding="utf-8")
