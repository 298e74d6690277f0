"""The name of a task, read off the beginning of its message."""

import json
from typing import Any

import pytest

from kombu_delayq.message.fields import headers_of, read, task_at_start
from tests.support.messages import task_message


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_the_name_is_that_in_the_headers(separators: tuple[str, str]) -> None:
    """Messages of Celery tell it at their beginning, with spaces or without."""
    raw = json.dumps(task_message((1,)), separators=separators).encode()
    assert task_at_start(raw) == headers_of(read(raw))["task"] == "proj.task"


def _named(name: Any, **options: Any) -> bytes:
    message = task_message((1,))
    message["headers"]["task"] = name
    return json.dumps(message, **options).encode()


def _with_text_body() -> bytes:
    message = task_message((1,))
    return json.dumps({**message, "body": '[[], {"task": "other"}, {}]'}).encode()


@pytest.mark.parametrize(
    "raw",
    [
        None,
        b"",
        b"[]",
        b'{"body": "x"}',
        _named(None),
        _named("größe"),
        _named("größe", ensure_ascii=False),
        _named('a"b'),
        _named("a\\b"),
        _named("tab\t"),
        _with_text_body(),
        json.dumps(task_message((1,)), sort_keys=True).encode().replace(b'"lang"', b'"task": 5, "lang"'),
        json.dumps({"headers": {"headers": {"lang": "py", "task": "inner"}}}).encode(),
    ],
    ids=lambda raw: repr(raw)[:40],
)
def test_any_other_message_has_to_be_read(raw: bytes | None) -> None:
    """Where something is escaped, odd, or in another order, the beginning tells nothing, rather than a wrong name."""
    assert task_at_start(raw) is None
