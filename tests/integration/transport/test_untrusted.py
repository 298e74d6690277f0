"""Bodies in a format that somebody has registered with kombu, which may run code when it reads them."""

import json
import time
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from kombu import Consumer, Queue, compression, serialization
from kombu.exceptions import ContentDisallowed

from celery_ext import get, reschedule, run_now
from celery_ext.waiting import DelayedTask
from kombu_delayq.message.due import eta_of
from kombu_delayq.store.types import Offer, Waiting
from tests.support.workers.harness import TRANSPORT, MakeProj, Proj

TRAPS = ["application/x-trap", "application/x-yaml", "application/x-msgpack", "application/data"]


@pytest.fixture(params=TRAPS)
def trap(request: pytest.FixtureRequest) -> Iterator[tuple[str, list[object]]]:
    """A serializer whose decoder runs code: its content type, one of kombu's among them, and what it was given."""
    ran: list[object] = []
    before = dict(serialization.registry._decoders), dict(serialization.registry.type_to_name)
    serialization.register("trap", json.dumps, lambda raw: ran.append(raw) or json.loads(raw), request.param, "utf-8")
    yield request.param, ran
    serialization.unregister("trap")
    serialization.registry._decoders.update(before[0])
    serialization.registry.type_to_name.update(before[1])


def message_of(content_type: str, task_id: str = "i", **headers: str) -> dict[str, Any]:
    """Makes a task of protocol 1 that is due in an hour, as kombu keeps it in a queue."""
    eta = datetime.fromtimestamp(time.time() + 3600, UTC).isoformat()
    task = {"task": "proj.record", "id": task_id, "args": ["x"], "kwargs": {}, "eta": eta}
    return {
        "body": b64encode(json.dumps(task).encode()).decode(),
        "content-type": content_type,
        "content-encoding": "utf-8",
        "headers": headers,
        "properties": {
            "correlation_id": task_id,
            "body_encoding": "base64",
            "delivery_tag": f"tag-{task_id}",
            "delivery_info": {"exchange": "", "routing_key": "celery"},
            "delivery_mode": 2,
            "priority": 0,
        },
    }


def received(proj: Proj) -> list[Any]:
    """Consumes the queue in a consumer of JSON until something came. Returns bodies, or errors of those refused."""
    found: list[Any] = []
    with proj.connection() as connection:
        consumer = Consumer(
            connection,
            [Queue("celery")],
            accept=["json"],
            callbacks=[lambda body, _: found.append(body)],
            on_decode_error=lambda _, error: found.append(error),
        )
        with consumer:
            connection.drain_events(timeout=30)
    return found


@pytest.mark.parametrize("trap", TRAPS[:1], indirect=True)
@pytest.mark.parametrize("transport", ["", TRANSPORT])
def test_a_consumer_of_json_runs_no_other_decoder(
    make_proj: MakeProj, transport: str, trap: tuple[str, list[object]]
) -> None:
    """A message in a registered format that comes to a consumer of JSON is refused by kombu's check, as on stock."""
    content_type, ran = trap
    proj = make_proj(broker_transport=transport)
    proj.server.client().lpush("celery", json.dumps(message_of(content_type)))
    assert [type(error) for error in received(proj)] == [ContentDisallowed]
    assert ran == []


@pytest.mark.both_layouts
def test_what_is_done_with_a_waiting_message_runs_no_registered_decoder(
    proj: Proj, trap: tuple[str, list[object]]
) -> None:
    """To look at a message that waits, to reschedule it or to run it now decodes no registered format."""
    content_type, ran = trap
    with proj.connection() as connection:
        store = connection.default_channel.store
        due = repr(time.time() * 1000 + 3_600_000)
        store.delivery.offer("celery", Offer("i", due, 0, json.dumps(message_of(content_type))))
    task = get(proj.app, "i")
    assert task is not None
    if content_type == "application/x-yaml":  # JSON is YAML too, and read by a loader that runs nothing
        expected = (["x"], "rescheduled", "transferred")
    else:
        expected = (None, "unreadable", "unreadable")
    assert (task.args, reschedule(proj.app, "i", countdown=7200), run_now(proj.app, "i")) == expected
    assert ran == []


def test_publishing_decodes_nothing_that_somebody_registered(proj: Proj, trap: tuple[str, list[object]]) -> None:
    """A producer that forwards a message in a registered format does not read it: the consumer's check comes first."""
    content_type, ran = trap
    message = message_of(content_type)
    with proj.connection() as connection:
        connection.default_channel._put("celery", message)
    assert ran == []
    assert proj.delayed() == (content_type == "application/x-yaml")


def test_a_registered_compression_is_not_run_for_an_eta() -> None:
    """A compression that is not kombu's own is left to the consumer, also under the name of one that is."""
    ran: list[object] = []
    before = dict(compression._decoders), dict(compression._encoders)
    try:
        for kind in ("application/x-own", "application/x-gzip"):
            compression.register(lambda raw: raw, lambda raw: ran.append(raw) or raw, kind)
            message = message_of("application/json", compression=kind)
            assert eta_of(message) is None
            waiting = Waiting("celery", "i", 0.0, 0, json.dumps(message).encode())
            assert DelayedTask(waiting).args is None
    finally:
        del compression._decoders["application/x-own"], compression._encoders["application/x-own"]
        compression._decoders.update(before[0])
        compression._encoders.update(before[1])
    assert ran == []
