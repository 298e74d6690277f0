"""What makes a worker's consumer lean, without a worker."""

from types import SimpleNamespace
from typing import Any

import pytest
from celery.app.task import Context
from celery.worker.consumer import Consumer
from kombu import serialization
from kombu.utils import json

from celery_ext.worker.consumer import LeanConsumer, make_lean, note_celerys_headers
from kombu_delayq.consume.fetched import FetchedMessage
from kombu_delayq.message.fields import from_json


class OwnConsumer(Consumer):
    """What ``worker_consumer`` names."""


class Noted(FetchedMessage):
    """A message whose channel notes acks.

    Args:
        acks_later: Whether they are only noted, and sent later.
    """

    def __init__(self, *, acks_later: bool) -> None:
        self.acked: list[str] = []
        self._state, self.delivery_tag, self.delivery_info = "RECEIVED", "tag", {}
        self.channel = SimpleNamespace(
            no_ack_consumers=None,
            fetcher=SimpleNamespace(acks_later=lambda tag: acks_later),
            basic_ack=lambda tag, multiple: self.acked.append(tag),
            basic_reject=lambda tag, requeue: self.acked.append(tag),
        )


@pytest.fixture
def consumer() -> Any:
    """A consumer that has an event loop."""
    worker = SimpleNamespace(consumer_cls=OwnConsumer)
    make_lean(worker)
    made = object.__new__(worker.consumer_cls)
    made.later = []
    made.hub = SimpleNamespace(call_soon=made.later.append)
    return made


def test_a_consumer_of_the_users_own_is_extended(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``worker_consumer`` names is the base, under its own name, and is extended once."""
    worker = SimpleNamespace(consumer_cls=f"{__name__}:OwnConsumer")
    make_lean(worker)
    made = worker.consumer_cls
    assert made.__mro__[:3] == (made, LeanConsumer, OwnConsumer)
    assert made.__name__ == "OwnConsumer"
    make_lean(worker)
    assert worker.consumer_cls is made


@pytest.mark.parametrize("call_soon", ["call_soon", "call_soon_ack"])
def test_an_ack_that_is_only_noted_is_noted_at_once(consumer: Any, call_soon: str) -> None:
    """The loop has no part in it, so it need not turn."""
    message = Noted(acks_later=True)
    getattr(consumer, call_soon)(message.ack_log_error, None, ())
    assert (message.acked, consumer.later) == (["tag"], [])


def test_what_sends_something_is_left_to_the_loop(consumer: Any) -> None:
    """An ack that is sent at once, a second one, a reject, and any other callback are called in the next turn."""
    twice = Noted(acks_later=True)
    twice.ack_log_error(None, ())
    calls = [Noted(acks_later=False).ack_log_error, twice.ack_log_error, Noted(acks_later=True).reject_log_error, print]
    for call in calls:
        consumer.call_soon(call, None, ())
    assert len(consumer.later) == len(calls)
    assert twice.acked == ["tag"]


def test_what_no_thread_has_begun_is_dropped_before_a_lost_connection_is_closed(
    consumer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a thread could begin a task whose message has just gone back to its queue."""
    consumer._threads, left = ["task"], list[Any]()
    monkeypatch.setattr(
        Consumer, "on_connection_error_after_connected", lambda self, exc: left.append([*self._threads])
    )
    consumer.on_connection_error_after_connected(OSError())
    assert left == [[]]


def test_json_of_tasks_is_read_by_us_unless_the_user_has_registered_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker reads JSON in less time, and a serializer of the user's own stays."""
    decoders: dict[str, Any] = serialization.registry._decoders
    monkeypatch.setitem(decoders, "application/json", json.loads)
    make_lean(SimpleNamespace(consumer_cls=OwnConsumer))
    assert decoders["application/json"] is from_json
    monkeypatch.setitem(decoders, "application/json", print)
    make_lean(SimpleNamespace(consumer_cls=OwnConsumer))
    assert decoders["application/json"] is print


@pytest.mark.parametrize(
    ("request_", "headers"),
    [({"id": "1"}, None), ({"id": "1", "own": [1]}, {"own": [1]}), ({"headers": {"own": 1}}, {"own": 1}), ({}, None)],
)
def test_requests_have_the_headers_that_celery_finds(
    request_: dict[str, Any], headers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker remembers Celery's own headers, and those of a user are in each request of a task, also as pairs."""
    find = Context._get_custom_headers
    monkeypatch.setattr(Context, "_get_custom_headers", getattr(find, "__wrapped__", find))
    for _ in range(2):
        for made in (Context(request_, args=(), kwargs={}), Context([*request_.items()], args=())):
            assert made.headers == headers
        note_celerys_headers()
    assert Context(request_, more=1).headers == (headers if "headers" in request_ else {**(headers or {}), "more": 1})
