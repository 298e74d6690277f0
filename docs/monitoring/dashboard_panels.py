"""The kinds of panels that the dashboard has, and the expressions that they show.

Every expression takes the largest value of all exporters of one Redis, so any number of exporters may run.
"""

from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, heatmap, stat, timeseries
from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    ReduceDataOptions,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

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


def quantile(share: float, buckets: str = "delayq_delivery_lateness_seconds_bucket") -> str:
    """Returns the expression of a quantile by queue, by default of the lateness."""
    return f"histogram_quantile({share}, {rate_by_queue(buckets, 'le')})"
