"""The charts of the past, and the table of consumers."""

from types import SimpleNamespace
from typing import Any

from celery_ext.serve.access.identity import OPERATING, Caller
from celery_ext.serve.minutes import Minutes
from celery_ext.serve.page.overview import consumers_of
from celery_ext.serve.page.past import BARS, past
from kombu_delayq.store.types import ConsumerLease


def store_with(**counts: int) -> Any:
    """Returns a store whose queue has these numbers in the first and in the last minute."""

    def read(queues: list[str], now_ms: float, count: int) -> dict[str, Minutes]:
        blocks = {name: [0] * count for name in Minutes._fields}
        for name, number in counts.items():
            blocks[name][0] = blocks[name][-1] = number
        return {queues[0]: Minutes(**blocks)}

    return SimpleNamespace(part=lambda kind: SimpleNamespace(read=read))


def test_numbers_of_the_past_hour_and_day() -> None:
    """Sums, the highest bar and the largest lateness; what should not happen is marked where it has."""
    store = store_with(delivered=1200, late_ms=90_000, failed=1)
    found = past(store, ["q"], [], "hour", 0.0)
    assert [(one.name, one.total, one.most, one.is_bad) for one in found.charts] == [
        ("Came due", "2,400", "max 1,200/min", False),
        ("Late by up to", "1.5 min", "", False),
        ("Retried", "0", "", False),
        ("Failed", "2", "max 1/min", True),
        ("Dead letters", "0", "", False),
    ]
    assert (found.span, found.bar) == ("hour", "a minute")
    assert found.charts[0].bars.path.count("M") == 2
    assert found.charts[0].bars.width == 5 * (BARS + 1)
    day = past(store, ["q"], [], "month", 0.0)
    assert (day.span, day.bar, day.charts[0].most) == ("day", "24 min", "max 1,200/24 min")
    assert [one.total for one in past(store_with(), ["q"], [], "hour", 0.0).charts][:2] == ["0", "none"]
    assert past(store_with(delivered=1), ["q"], [], "hour", 0.0).charts[1].total == "≤ 5 ms"


def test_consumers_with_what_they_hold() -> None:
    """Those that hold most come first; of their queues a caller sees his own, and no consumer without any of these."""
    leases = [
        ConsumerLease("a:1:0", 5000.0, ["q", "r"], 2, 61.0),
        ConsumerLease("b:2:0", 5000.0, list("uvwxyz"), 9, 5.0),
        ConsumerLease("c:3:0", -1.0, ["q"], None, None),
        ConsumerLease("http:ada:9-0123", 5.0, ["r"], 0, None),
    ]
    rows = consumers_of(leases, Caller("ops", OPERATING))
    assert [(lease.host, queues) for lease, queues in rows] == [
        ("b", list("uvwxyz")),
        ("a", ["q", "r"]),
        ("c", ["q"]),
        ("http", ["r"]),
    ]
    of_one = consumers_of(leases, Caller("ops", OPERATING, queues=("r",)))
    assert [(lease.host, queues) for lease, queues in of_one] == [("a", ["r"]), ("http", ["r"])]
