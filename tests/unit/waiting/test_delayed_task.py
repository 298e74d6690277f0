import json
import pickle
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from celery_ext.waiting import DelayedTask
from celery_ext.waiting.delayed_task import READABLE
from kombu_delayq.store.types import Waiting
from tests.support.messages import ETA, ETA_AT, ETA_MS, plain_message, task_message
from tests.support.messages import changed_message as damaged


def task_of(message: object) -> DelayedTask:
    """Returns a waiting message as a user sees it."""
    body = message if isinstance(message, bytes) or message is None else json.dumps(message).encode()
    return DelayedTask(Waiting("orders", "stored-id", 1000.0, 3, body))


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


@pytest.mark.parametrize(
    ("protocol", "serializer", "compression"),
    list(product((1, 2), ("json", "yaml", "msgpack"), (None, "gzip", "bzip2"))),
)
def test_a_task_of_every_form_tells_of_itself(protocol: int, serializer: str, compression: str | None) -> None:
    """A task of protocol 1 or 2 tells what it is, in every serializer that runs nothing, compressed or not."""
    message = task_message(
        (1, "ü"),
        conf={"task_protocol": protocol, "task_serializer": serializer},
        kwargs={"k": [None]},
        task_id="t",
        eta=ETA_AT,
        retries=3,
        compression=compression,
    )
    task = task_of(message)
    assert (task.id, task.name, task.eta, task.retries) == ("t", "proj.task", ETA, 3)
    assert (list(task.args), task.kwargs) == ([1, "ü"], {"k": [None]})
    assert (task.argsrepr, task.kwargsrepr) in [("(1, 'ü')", "{'k': [None]}"), ("[1, 'ü']", "{'k': [None]}")]
    assert (task.queue, task.priority, task.delay_chain) == ("orders", 3, None)


def test_a_plain_message_is_no_task() -> None:
    """What plain kombu published has the id under which it is stored, whatever its headers and its body say."""
    body = {"id": "other", "eta": ETA, "retries": 7}
    for message in (plain_message(body, headers=body, DelaySeconds=5), plain_message("text", headers={"id": "x"})):
        task = task_of(message)
        assert (task.id, task.name, task.eta, task.retries) == ("stored-id", None, None, 0)
        assert (task.args, task.kwargs, task.embed, task.argsrepr) == (None, None, {}, "")


def test_protocol_2_tells_what_follows_the_task() -> None:
    """Callbacks and the chord are part of what a message of protocol 2 tells."""
    embed = {"callbacks": [{"task": "c"}], "errbacks": None, "chain": None, "chord": {"task": "b"}}
    assert task_of(damaged(json.dumps([[], {}, embed]).encode())).embed == embed


def test_bytes_that_are_no_utf8_do_not_hide_a_task() -> None:
    """A message that kombu's consumers take is shown with its task, though not all of its bytes are UTF-8."""
    task = task_of(json.dumps(damaged()).encode().replace(b'"id"', b'"shadow": "caf\xe9", "id"'))
    assert (task.id, task.name, task.args) == ("t", "proj.add", [1])
    assert task.headers["shadow"] == "caf\udce9"


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("protocol", [1, 2])
def test_pickled_arguments_are_not_executed(protocol: int, tmp_path: Path) -> None:
    """Looking at a task with pickled arguments runs nothing of them, unless the caller accepts pickles."""
    trap = tmp_path / "sprung"
    conf = {"task_protocol": protocol, "task_serializer": "pickle"}
    message = task_message((Trap(trap),), conf=conf, task_id="t", eta=ETA_AT)
    task = task_of(message)
    assert (task.args, task.kwargs, task.embed) == (None, None, {})
    assert (task.id, task.name) == (("t", "proj.task") if protocol == 2 else ("stored-id", None))
    assert not trap.exists()
    accepting = DelayedTask(task.message, accept=(*READABLE, "application/x-python-serialize"))
    assert (accepting.id, accepting.name) == ("t", "proj.task")
    assert accepting.args is not None
    assert trap.exists(), "the trap works"


def test_nothing_decodes_a_pickle_that_is_called_something_else() -> None:
    """A content type decides how a body is read, so that a pickle called JSON is not unpickled."""
    assert task_of(damaged(pickle.dumps(([1], {}, {})))).args is None


@pytest.mark.parametrize("value", [None, 5, ["x"], {"a": 1}, True, ""])
def test_what_should_be_text_and_is_not_is_not_told(value: object) -> None:
    """An id, a name or an eta of another type is as if there were none."""
    task = task_of(damaged(headers={"id": value, "task": value, "eta": value, "argsrepr": value, "kwargsrepr": value}))
    assert task.id == "stored-id"
    assert task.name in (None, "")
    assert task.eta in (None, "")
    assert isinstance(task.argsrepr, str)


@pytest.mark.parametrize(
    ("due_ms", "due"),
    [
        (ETA_MS, ETA_AT),
        (0.5, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=500)),
        (253402344000000.0, datetime.max.replace(tzinfo=UTC)),
        (-1e18, datetime.min.replace(tzinfo=UTC)),
    ],
)
def test_due_is_a_datetime_also_where_none_can_name_it(due_ms: float, due: datetime) -> None:
    """A due time in the year 10000, which ``DelaySeconds`` and an eta west of Greenwich can have, is told as 9999's."""
    assert DelayedTask(Waiting("orders", "i", due_ms, 0, b"{}")).due == due
