import json
from datetime import UTC, datetime
from typing import Any

import pytest

from celery_ext.cli.output import json_line


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
