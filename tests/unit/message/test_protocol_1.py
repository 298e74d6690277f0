"""``eta_of`` on tasks of protocol 1, which hide their eta in the body."""

import base64
import copyreg
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu import Exchange, Queue

from kombu_delayq.message.due import Due, due_of, eta_of
from kombu_delayq.message.fields import Message
from tests.support.messages import ETA, ETA_AT, ETA_MS, plain_message, published, task_message

SERIALIZERS = ["json", "pickle", "yaml", "msgpack"]


def protocol_1(args: tuple[Any, ...] = (1, "x"), *, serializer: str = "json", **options: Any) -> Message:
    conf = {"task_protocol": 1, "task_serializer": serializer}
    return task_message(args, conf=conf, task_id="some id", **options)


def with_body(body: bytes, content_type: str, encoding: str = "utf-8") -> Message:
    """Makes what a protocol 1 producer might have sent, with any body."""
    properties = {"correlation_id": "some id", "body_encoding": "base64", "delivery_tag": "tag"}
    return {
        "body": base64.b64encode(body).decode(),
        "content-type": content_type,
        "content-encoding": encoding,
        "headers": {},
        "properties": properties,
    }


@pytest.mark.parametrize("compression", [None, "zlib", "bzip2", "lzma"])
@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_eta_in_the_body_is_the_due_time(serializer: str, compression: str | None) -> None:
    """The eta of a protocol 1 task is read from its body, in every serialization and compression."""
    message = protocol_1(serializer=serializer, eta=ETA_AT, compression=compression)
    assert "eta" not in message["headers"]
    assert due_of(message) == Due(ETA_MS, False, "some id")


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_task_without_eta_is_due_at_once(serializer: str) -> None:
    """A protocol 1 task without an eta has no due time, also when its arguments speak of one."""
    assert due_of(protocol_1(("eta", {"task": ETA}), serializer=serializer)) is None


def test_other_bodies_with_a_correlation_id_are_due_at_once() -> None:
    """An RPC message of a plain kombu producer, which has a correlation id too, is no task, whatever it says."""
    for body in (
        {"eta": ETA, "task": "t"},
        {"eta": ETA, "args": []},
        ["eta", "task", "args"],
        "eta task args",
        b"eta task",
    ):
        assert due_of(plain_message(body, correlation_id="i")) is None


def test_a_dict_like_a_task_without_a_correlation_id_is_due_at_once() -> None:
    """Celery sets a correlation id on every task; a message without one is no task."""
    assert due_of(plain_message({"task": "t", "args": [], "id": "i", "eta": ETA})) is None


def test_events_about_a_delayed_task_are_due_at_once() -> None:
    """The event that tells of a task with an eta is not delayed itself."""
    app = Celery("events", broker="memory://", set_as_current=False)
    with app.connection_for_write() as connection:
        Queue("published", Exchange("celeryev", type="topic"), "#", channel=connection.default_channel).declare()
        with app.events.Dispatcher(connection, hostname="w") as dispatcher:
            dispatcher.send("task-received", uuid="i", name="t", args="()", kwargs="{}", eta=ETA)
        message: Message = {}
        while b"task-received" not in base64.b64decode(message.get("body", "")):
            message = published(app)  # the dispatcher also tells that it is online
        connection.default_channel.queue_delete("published")  # else it gets the events of later tests
    assert due_of(message) is None
    message["properties"]["correlation_id"] = "i"
    assert due_of(message) is None


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/x-python-serialize", "application/x-yaml", "no/such", None]
)
@pytest.mark.parametrize("body", [b"eta task \xff\xfe", b"", b"{eta: task: [", b"\x80\x04eta task."])
def test_a_body_that_cannot_be_read_is_due_at_once(body: bytes, content_type: str | None) -> None:
    """A body that its serializer does not read goes its stock way: the consumer meets it and reports it."""
    assert eta_of(with_body(body, content_type)) is None  # type: ignore[arg-type]


class Opens:
    """Makes a file when it is unpickled as Python does it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


class Restless(dict[str, Any]):
    """Pickled with a constructor, a state and items, all of which unpickling uses."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.attribute = 1

    def __reduce__(self) -> tuple[Any, ...]:
        return Restless, ({"a": 1},), {"attribute": 2}, iter([1, 2]), iter({"k": "v"}.items())


def test_reading_a_pickled_task_runs_nothing(tmp_path: Path) -> None:
    """The eta of a pickled task is read although its arguments would run a command, and the command does not run."""
    trap = tmp_path / "touched"
    body = pickle.dumps({"task": "t", "id": "some id", "args": (Opens(trap),), "kwargs": {}, "eta": ETA})
    message = with_body(body, "application/x-python-serialize", "binary")
    assert due_of(message) == Due(ETA_MS, False, "some id")
    assert not trap.exists()
    pickle.loads(body)
    assert trap.exists(), "the trap works, were it unpickled"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_arguments_of_any_class_do_not_hide_the_eta(protocol: int) -> None:
    """Objects in the arguments, in every pickle protocol, are passed over."""
    args = (Restless(), {1, 2}, 3 + 4j, Path("/x"), ValueError("x"), frozenset([1]), bytearray(b"x"))
    body = pickle.dumps({"task": "t", "id": "some id", "args": args, "eta": ETA}, protocol)
    assert due_of(with_body(body, "application/x-python-serialize", "binary")) == Due(ETA_MS, False, "some id")


def test_an_eta_object_in_a_pickle_is_no_due_time() -> None:
    """An eta that is not text, such as an object in a pickle, gives no due time."""
    body = pickle.dumps({"task": "t", "id": "i", "args": (), "eta": Path(ETA)})
    assert due_of(with_body(body, "application/x-python-serialize", "binary")) is None


def test_a_body_that_is_not_encoded_is_read_too() -> None:
    """A protocol 1 task of a producer that does not use base64 is due at its eta."""
    message = protocol_1(eta=ETA_AT)
    message["body"] = base64.b64decode(message["body"]).decode()
    del message["properties"]["body_encoding"]
    assert due_of(message) == Due(ETA_MS, False, "some id")


def test_no_class_with_a_number_is_called_by_a_pickle() -> None:
    """A class that copyreg has given a number is not called by a pickle that names it so: the message goes its way."""
    called: list[object] = []
    _numbered.calls = called.append  # type: ignore[attr-defined]
    copyreg.add_extension(__name__, "_numbered", 240)
    try:
        body = pickle.dumps({"task": "t", "id": "i", "args": (Numbered(),), "eta": ETA})
        assert b"\x82\xf0" in body, "the pickle has the number"
        pickle.loads(body)
        assert called, "the trap works, were it unpickled"
        called.clear()
        assert due_of(with_body(body, "application/x-python-serialize", "binary")) is None
    finally:
        copyreg.remove_extension(__name__, "_numbered", 240)
    assert called == []
    assert due_of(
        with_body(pickle.dumps({"task": "t", "id": "i", "args": (), "eta": ETA}), "application/x-python-serialize")
    )


def _numbered() -> None:
    _numbered.calls(1)  # type: ignore[attr-defined]


class Numbered:
    def __reduce__(self) -> tuple[Any, ...]:
        return _numbered, ()
