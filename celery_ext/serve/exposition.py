"""Families of metrics, and the texts in which Prometheus takes them.

prometheus-client makes an object of each value and checks each name, which takes ten times as long: with thousands of
queues, longer than a scrape may.
"""

import gzip
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import inf, isfinite
from typing import Any, Literal, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from kombu_delayq.store import Histogram
from kombu_delayq.text import readable

#: Values of a family, numbers or histograms, by their label, a text, or by several, a tuple of texts.
Values: TypeAlias = Mapping[Any, Any]
_MADE_AS = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}
#: Bodies of at least so many bytes are compressed for who takes that.
LARGE = 10_000


@dataclass(frozen=True)
class Family:
    """A metric with all its series.

    Attributes:
        kind: What it is.
        name: Its name, for a counter without ``_total``.
        text: What it says, in a sentence.
        labels: Names of the labels.
        values: Each value under its label, or a tuple of several; of a histogram, the histograms.
        unit: Its unit, with which the name ends; empty for a number.
    """

    kind: Literal["gauge", "counter", "histogram"]
    name: str
    text: str
    labels: Sequence[str]
    values: Values
    unit: str = ""

    def metric(self) -> Metric:
        """Returns it as a registry of prometheus-client takes it."""
        made: Any = _MADE_AS[self.kind](self.name, self.text, labels=self.labels, unit=self.unit)
        for names, value in self.values.items():
            shown = list(map(readable, _tuple(names)))
            if isinstance(value, Histogram):
                made.add_metric(shown, [*zip(_bounds(value.bounds_s), _counts(value), strict=True)], value.sum_s)
            else:
                made.add_metric(shown, value)
        found: Metric = made
        return found

    def lines(self, shown: "_Escaped", *, is_open: bool) -> Iterator[str]:
        """Yields its lines.

        Args:
            shown: Values of labels as they stand in a text.
            is_open: Whether they are of OpenMetrics, else of the format of Prometheus.
        """
        total = "_total" if self.kind == "counter" else ""
        family = self.name if is_open else self.name + total
        yield f"# HELP {family} {self.text}\n# TYPE {family} {self.kind}\n"
        if is_open and self.unit:
            yield f"# UNIT {family} {self.unit}\n"
        labels = ",".join(f'{label}="%s"' for label in self.labels)
        if self.kind == "histogram":
            yield from self._lines_of_histograms(shown, labels)
            return
        line = f"{self.name}{total}{{{labels}}} %s\n" if labels else f"{self.name}{total} %s\n"
        for names, value in self.values.items():
            yield line % (*[shown[name] for name in _tuple(names)], _number(value))

    def _lines_of_histograms(self, shown: "_Escaped", labels: str) -> Iterator[str]:
        for names, found in self.values.items():
            of_queue = labels % tuple(shown[name] for name in _tuple(names))
            bucket = f'{self.name}_bucket{{{of_queue},le="'
            for bound, count in zip(_bounds(found.bounds_s), _counts(found), strict=True):
                yield f'{bucket}{bound}"}} {count}\n'
            yield f"{self.name}_count{{{of_queue}}} {found.count}\n"
            yield f"{self.name}_sum{{{of_queue}}} {_number(found.sum_s)}\n"


gauge = partial(Family, "gauge")
counter = partial(Family, "counter")
histogram = partial(Family, "histogram")


def answer(families: Iterable[Family], accept: str, accept_encoding: str) -> tuple[bytes, dict[str, str]]:
    """Returns the body of an answer to a scrape, and its headers.

    Args:
        families: The metrics.
        accept: Header of the request: OpenMetrics if it is preferred, else the format of Prometheus.
        accept_encoding: Header of the request.
    """
    media_type = choose_encoder(accept)[1]
    is_open = media_type.startswith("application/openmetrics-text")
    shown = _Escaped()
    lines = [line for family in families for line in family.lines(shown, is_open=is_open)]
    body = "".join((*lines, "# EOF\n" if is_open else "")).encode()
    headers = {"Content-Type": media_type, "Cache-Control": "no-store", "Vary": "Accept, Accept-Encoding"}
    if len(body) >= LARGE and "gzip" in (part.partition(";")[0].strip() for part in accept_encoding.split(",")):
        body = gzip.compress(body, 1)
        headers["Content-Encoding"] = "gzip"
    return body, headers


class _Escaped(dict[str, str]):
    """Values of labels as they stand between quotes, by the values."""

    def __missing__(self, name: str) -> str:
        escaped = readable(name).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        self[name] = escaped
        return escaped


def _tuple(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


@cache
def _bounds(bounds_s: tuple[float, ...]) -> list[str]:
    return list(map(floatToGoString, (*bounds_s, inf)))


def _counts(found: Histogram) -> tuple[int, ...]:
    return (*found.buckets, found.count)


def _number(value: float) -> str:
    return f"{value:d}" if isinstance(value, int) else repr(value) if isfinite(value) else str(floatToGoString(value))
