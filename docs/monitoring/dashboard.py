"""Writes ``dashboard.json`` for Grafana: ``python docs/monitoring/dashboard.py``, with ``--check`` it only looks.

Needs ``grafana-foundation-sdk``. The rows are in the files beside this one.
"""

import sys
from pathlib import Path

from dashboard_panels import SOURCE
from dashboard_rows import late_and_held_back, limits, now, periodic, ways
from dashboard_servers import cluster, journal
from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, QueryVariable, Row
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import TimeZoneBrowser
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, VariableRefresh, VariableSort

TARGET = Path(__file__).with_suffix(".json")


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
    return cluster(journal(periodic(limits(late_and_held_back(ways(board))))))


def text() -> str:
    """Returns the JSON of the dashboard."""
    return JSONEncoder(sort_keys=True, indent=2).encode(dashboard().build()) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        current = TARGET.read_text(encoding="utf-8") == text()
        sys.exit(0 if current else f"{TARGET.name} is not current: run python docs/monitoring/dashboard.py")
    TARGET.write_text(text(), encoding="utf-8")
