"""What a collector says, as numbers by name and labels."""

from collections.abc import Iterable
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.registry import Collector

from celery_ext.serve import DelayqCollector
from kombu_delayq.store import OperatorStore

#: Name and labels of a series, the labels in their order.
Series = tuple[str, ...]


def collector_of(store: OperatorStore, **given: Any) -> DelayqCollector:
    """Returns a collector that reads from a store of a test."""
    collector = DelayqCollector("redis://", **given)
    collector.broker._store = store
    return collector


def scraped(collector: Collector) -> dict[Series, float]:
    """Scrapes a collector once, in both formats, which must agree. Returns the value of each series by its name."""
    once = _Once(list(collector.collect()))
    found = series_in(generate_latest(once).decode())
    again = parse_openmetrics(openmetrics(once).decode())
    assert _series(again).keys() == found.keys()
    return found


class _Once(Collector):
    """What a scrape has found, as the encoders take it."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def series_in(text: str) -> dict[Series, float]:
    """Returns the value of each series of a text, by its name without ``delayq_`` and its labels, sorted by name."""
    return _series(parse_text(text))


def _series(families: Iterable[Any]) -> dict[Series, float]:
    samples = [sample for family in families for sample in family.samples]
    found = {
        (sample.name.removeprefix("delayq_"), *(sample.labels[label] for label in sorted(sample.labels))): sample.value
        for sample in samples
    }
    assert len(found) == len(samples)
    return found
