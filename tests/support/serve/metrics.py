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
from celery_ext.serve.exposition import answer
from kombu_delayq.store import DelayStore

#: What Prometheus asks for.
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
#: Name and labels of a series, the labels in their order.
Series = tuple[str, ...]


def collector_of(store: DelayStore, **given: Any) -> DelayqCollector:
    """Returns a collector that reads from a store of a test."""
    collector = DelayqCollector("redis://", **given)
    collector.broker._store = store
    return collector


def scraped(collector: DelayqCollector) -> dict[Series, float]:
    """Scrapes a collector once. Returns the value of each series by its name.

    Ours and prometheus-client's text must say the same, in both formats.
    """
    families = list(collector.families(lambda queue: True))
    once = Once([family.metric() for family in families])
    found = series_in(generate_latest(once).decode())
    assert series_in(answer(families, "", "")[0].decode()) == found
    ours, others = answer(families, OPENMETRICS, "")[0].decode(), openmetrics(once).decode()
    assert described(ours) == described(others)
    assert _series(parse_openmetrics(ours)) == _series(parse_openmetrics(others))
    assert _series(parse_openmetrics(ours)).keys() == found.keys()
    return found


def described(text: str) -> list[str]:
    """Returns what a text says of its metrics beside their values: names, units, types and help texts."""
    return sorted(line for line in text.splitlines() if line.startswith("#"))


class Once(Collector):
    """What a scrape has found, as the encoders take it."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        """Returns it."""
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
