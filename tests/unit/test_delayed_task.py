import json
from base64 import b64encode
from typing import Any

import pytest

from celery_ext.delayed_task import DelayedTask
from kombu_delayq.results import Waiting


def task_of(message: object) -> DelayedTask:
    """Returns a waiting message as a user sees it."""
    body = message if isinstance(message, bytes) or message is None else json.dumps(message).encode()
    return DelayedTask(Waiting("orders", "stored-id", 1000.0, 3, body))


def damaged(content: bytes = b"[[1], {}, {}]", **changes: Any) -> dict[str, Any]:
    """Returns a message of protocol 2 with something wrong in it."""
    return {
        "body": b64encode(content).decode(),
        "headers": {"id": "t", "task": "proj.add", **changes.pop("headers", {})},
        "properties": {"body_encoding": "base64", **changes.pop("properties", {})},
        "content-type": "application/json",
        "content-encoding": "utf-8",
        **changes,
    }


def test_a_task_tells_its_arguments() -> None:
    """What is not damaged is read, which the tests of damage rely on."""
    task = task_of(damaged())
    assert (task.id, task.name, task.args, task.kwargs, task.retries) == ("t", "proj.add", [1], {}, 0)


@pytest.mark.parametrize(
    "message",
    [
        None,
        b"\xff\xfe",
        b"[" * 100_000,
        [1],
        damaged(b"no json"),
        damaged(b"x", headers={"compression": "application/x-gzip"}),
        damaged(b"x", headers={"compression": ["zlib"]}),
        damaged(b"\x00{", **{"content-type": "application/x-yaml"}),
        damaged(headers={"retries": "many", "task": 5, "id": 6}),
        damaged() | {"headers": 7, "properties": 8},
        damaged(properties={"delay_chain": 5}),
        damaged() | {"body": 12},
    ],
    ids=range(12),
)
def test_a_damaged_message_is_told_as_far_as_it_can_be_read(message: object) -> None:
    """No damage of a message keeps the others of a listing from being seen."""
    task = task_of(message)
    assert task.retries == 0
    assert task.delay_chain is None
    assert isinstance(task.id, str)
    assert task.name in (None, "proj.add")
    assert task.args in (None, [1])
    assert isinstance(task.argsrepr + task.kwargsrepr, str)
    assert task.queue == "orders"
