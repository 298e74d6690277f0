import json
from datetime import UTC, datetime
from math import inf
from typing import Any

import pytest

from celery_ext.cli.output import json_line, number_of, table
from celery_ext.delays.durations import in_words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "in 0.0s"),
        (4.25, "in 4.2s"),
        (-4.25, "4.2s ago"),
        (42, "in 42s"),
        (60, "in 1m 0s"),
        (192 * 60, "in 3h 12m"),
        (-90_061, "1d 1h ago"),
        (3600, "in 1h"),
        (3599.6, "in 1h"),
        (9.97, "in 10.0s"),
        (59.7, "in 1m 0s"),
        (inf, "in an endless time"),
        (-inf, "an endless time ago"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    """A duration is printed by its two largest units, relative to now."""
    assert in_words(seconds) == text


def test_a_plain_duration_has_no_direction() -> None:
    """A plain duration says how long, not when."""
    assert in_words(-3.2, plain=True) == "3.2s"


def test_one_thing_is_counted_in_the_singular() -> None:
    """One thing has the words for one, and none or many have those for many, by default with an s."""
    assert [number_of(count, "row") for count in (0, 1, 1200)] == ["0 rows", "1 row", "1,200 rows"]
    assert [number_of(count, "task is", "tasks are") for count in (1, 2)] == ["1 task is", "2 tasks are"]


def test_a_table_is_as_wide_as_its_cells() -> None:
    """Columns are as wide as their widest cell, numbers to the right, without blanks at line ends."""
    assert table(["A", "N"], [["long", "1"], ["x", "100"]], right={1}) == ["A       N", "long    1", "x     100"]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"a": [1, None, "é\n"]}, {"a": [1, None, "é\n"]}),
        ({"at": datetime(2026, 11, 21, tzinfo=UTC)}, {"at": repr(datetime(2026, 11, 21, tzinfo=UTC))}),
        ({"raw": b"\xff"}, {"raw": "b'\\xff'"}),
        ({"args": {b"k": 1}, "n": 2}, {"args": {"b'k'": 1}, "n": 2}),
        ({"due_in_s": float("inf"), "n": 2}, {"due_in_s": "inf", "n": 2}),
        ([float("nan")], "[nan]"),
    ],
)
def test_every_value_is_one_line_of_json(value: Any, read: Any) -> None:
    """What JSON does not have is there as Python writes it, and the fields beside it are as they were."""
    line = json_line(value)
    assert "\n" not in line
    assert json.loads(line, parse_constant=pytest.fail) == read
