"""How the API writes JSON, and what it makes of figures."""

import json
from typing import Any

import pytest

from celery_ext.serve.api.exchange import as_json, iso
from celery_ext.serve.api.tasks import Outcome, Task


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"a": [1, None, "é", 10**40, 1.5]}, {"a": [1, None, "é", 10**40, 1.5]}),
        ([float("nan"), float("inf")], [None, None]),
        (["\ud800", b"x", {(1, 2): object}], ["\ud800", repr(b"x"), {"(1, 2)": repr(object)}]),
        (Outcome(id="\udcff", outcome="cancelled"), {"id": "\udcff", "outcome": "cancelled"}),
    ],
    ids=["plain", "no numbers", "no JSON", "no UTF-8"],
)
def test_whatever_a_message_contains_becomes_json(value: Any, wanted: Any) -> None:
    """What JSON has no form for becomes its repr or null, and no answer fails for it."""
    assert json.loads(as_json(value)) == wanted


def test_what_is_not_known_is_left_out() -> None:
    """Hidden arguments are absent, not null, also where a text is no UTF-8."""
    task = Task(id="\udcff", task=None, queue="q", due=iso(0), due_in_s=0, priority=0, retries=0)
    assert json.loads(as_json(task)).keys().isdisjoint({"args", "kwargs", "argsrepr", "kwargsrepr"})


def test_times_are_in_utc_with_ms() -> None:
    """A time beyond the last year is the last moment that can be written."""
    assert iso(1_893_456_000_000.9) == "2030-01-01T00:00:00.000Z"
    assert iso(1e30) == "9999-12-31T23:59:59.999Z"
