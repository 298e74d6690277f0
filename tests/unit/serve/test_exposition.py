"""The texts of metrics: those of prometheus-client, in a fraction of its time."""

from math import inf, nan
from time import process_time

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics

from celery_ext.serve.exposition import Family, answer, counter, gauge, histogram
from celery_ext.serve.metric_families import MetricsSnapshot, all_of
from kombu_delayq.store.counts import OPERATIONS, QueueStats, counts_of
from tests.support.serve.metrics import OPENMETRICS, Once, described, series_in

FAMILIES = (
    gauge("delayq_a", "A number.", (), {(): 1}),
    gauge("delayq_b_seconds", "A time.", ("queue",), {'"}\n\\': 0.25, "ü": inf, "\udcff": -inf}, "seconds"),
    gauge("delayq_c", "Of two labels.", ("queue", "within"), {("q", "5"): 1e17, ("q", "60"): True}),
    counter("delayq_d_messages", "So many.", ("queue",), {"q": 123_456_789}),
    counter("delayq_e_messages", "None.", ("queue",), {}),
    histogram("delayq_f_seconds", "Lateness.", ("queue",), {"q": counts_of({"late:3": 2}, []).lateness}, "seconds"),
)


def test_the_texts_say_what_those_of_prometheus_client_say() -> None:
    """In both formats, with names that have to be escaped and numbers that are none in JSON."""
    once = Once([family.metric() for family in FAMILIES])
    text, accepted = answer(FAMILIES, "", "")
    assert series_in(text.decode()) == series_in(generate_latest(once).decode())
    assert described(text.decode()) == described(generate_latest(once).decode())
    assert accepted["Content-Type"].startswith("text/plain; version=0.0.4")
    text, accepted = answer(FAMILIES, OPENMETRICS, "gzip")
    assert described(text.decode()) == described(openmetrics(once).decode())
    assert text.endswith(b"\n# EOF\n")
    assert accepted["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert "Content-Encoding" not in accepted  # it is too short
    assert b" NaN\n" in answer([gauge("delayq_g", "None.", (), {(): nan})], "", "")[0]


def _families(queues: int) -> list[Family]:
    counts = counts_of({"late:1": 3, "late:7": 1, "waited:2": 4, "waited_s": 8, "cancel": 1}, [])
    names = [f"queue-{number}" for number in range(queues)]
    stats = [QueueStats(name, 0.0, 3, 2, 1, 1000.0) for name in names]
    return list(all_of(MetricsSnapshot(True, stats, dict.fromkeys(names, range(8)), dict.fromkeys(names, counts))))


def test_a_scrape_of_many_queues_costs_little() -> None:
    """At most a third of the time that prometheus-client takes, which takes longer than a scrape may."""

    def took_s(what: str) -> float:
        begun = process_time()
        families = _families(500)
        if what == "ours":
            assert answer(families, OPENMETRICS, "gzip")[0]
        else:
            assert openmetrics(Once([family.metric() for family in families]))
        return process_time() - begun

    ours, others = (min(took_s(what) for _ in range(3)) for what in ("ours", "others"))
    assert ours < others / 3


@pytest.mark.parametrize("name", ["delayq_delivery_lateness_seconds", "delayq_queue_wait_seconds"])
def test_a_histogram_begins_with_its_first_message(name: str) -> None:
    """A queue of which nothing was ever counted has no buckets, which were half of all series, and counters at 0."""
    counts = {"idle": counts_of({}, []), "busy": counts_of({"late:1": 1, "waited:2": 1}, [])}
    found = series_in(answer(all_of(MetricsSnapshot(True, (), {}, counts)), "", "")[0].decode())
    name = name.removeprefix("delayq_")
    assert {key[1:] for key in found if key[0] == f"{name}_count"} == {("busy",)}
    assert {found["transferred_messages_total", queue] for queue in counts} == {0, 1}
    assert {found["operations_total", operation, "idle"] for operation in OPERATIONS} == {0}
