"""What is replaced in Celery, without a worker."""

from types import SimpleNamespace
from typing import Any

import pytest
from celery.app.task import Context
from celery.worker.consumer import Consumer
from celery.worker.control import Panel
from kombu import serialization
from kombu.utils import json

from celery_ext.unrunnable import PatientConsumer
from celery_ext.worker.celery_patches import (
    PATCHES,
    CarefulConsumer,
    LeanConsumer,
    patch_commands,
    patch_worker,
    take_off,
)
from kombu_delayq.consume.fetched import FetchedMessage
from kombu_delayq.message.bodies import JSON
from kombu_delayq.message.fields import from_json
from tests.support import ROOT


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


def patched(consumer_cls: Any = OwnConsumer, **settings: Any) -> Any:
    """Returns a worker whose app has some settings, with all patches."""
    worker = SimpleNamespace(
        consumer_cls=consumer_cls, app=SimpleNamespace(conf=settings), wait_for_soft_shutdown=print
    )
    patch_worker(worker)
    return worker


@pytest.fixture
def consumer() -> Any:
    """A consumer that has an event loop."""
    worker = patched()
    made = object.__new__(worker.consumer_cls)
    made.later = []
    made.hub = SimpleNamespace(call_soon=made.later.append)
    return made


def test_a_consumer_of_the_users_own_is_extended() -> None:
    """What ``worker_consumer`` names is the base, under its own name, and is extended once."""
    worker = patched(f"{__name__}:OwnConsumer")
    made = worker.consumer_cls
    assert made.__mro__[:5] == (made, LeanConsumer, CarefulConsumer, PatientConsumer, OwnConsumer)
    assert made.__name__ == "OwnConsumer"
    patch_worker(worker)
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
    patched()
    assert decoders["application/json"] is from_json
    monkeypatch.setitem(decoders, "application/json", print)
    patched()
    assert decoders["application/json"] is print


@pytest.mark.parametrize(
    ("request_", "headers"),
    [({"id": "1"}, None), ({"id": "1", "own": [1]}, {"own": [1]}), ({"headers": {"own": 1}}, {"own": 1}), ({}, None)],
)
def test_requests_have_the_headers_that_celery_finds(request_: dict[str, Any], headers: Any) -> None:
    """A worker remembers Celery's own headers, and those of a user are in each request of a task, also as pairs."""
    for _ in range(2):
        for made in (Context(request_, args=(), kwargs={}), Context([*request_.items()], args=())):
            assert made.headers == headers
        patched()
    assert Context(request_, more=1).headers == (headers if "headers" in request_ else {**(headers or {}), "more": 1})


def _replaced(worker: Any) -> list[Any]:
    """Returns what patches replace in this process, and in a worker."""
    decoders: dict[str, Any] = serialization.registry._decoders
    of_worker = [worker.consumer_cls, worker.wait_for_soft_shutdown]
    return [*of_worker, Context._get_custom_headers, decoders[JSON], Panel.data["revoke"]]


def test_with_the_switch_off_only_what_a_promise_stands_on_is_replaced() -> None:
    """The process has Celery's own headers and kombu's own decoder, and the consumer waits as before."""
    before = _replaced(SimpleNamespace(consumer_cls=OwnConsumer, wait_for_soft_shutdown=print))
    worker = patched(delayq_patch_celery=False)
    assert _replaced(worker)[2:] == before[2:]
    assert issubclass(worker.consumer_cls, CarefulConsumer)
    assert not issubclass(worker.consumer_cls, LeanConsumer)


def test_all_patches_are_taken_off_in_one_place() -> None:
    """Afterwards Celery and kombu are as they were, and may be patched again."""
    before = _replaced(SimpleNamespace(consumer_cls=OwnConsumer, wait_for_soft_shutdown=print))
    for _ in range(2):
        worker = patched()
        patch_commands()
        assert all(now is not then for now, then in zip(_replaced(worker), before, strict=True))
        take_off()
        assert _replaced(worker) == before


def test_each_patch_of_the_table_names_where_it_is() -> None:
    """The table in the documentation is made of it."""
    for patch in PATCHES:
        assert (ROOT / patch.where).is_file()
