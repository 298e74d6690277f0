"""What has a message can be logged: its repr has no body and no arguments."""

import json
from typing import Any

import pytest

from celery_ext.cli.export_format import Exported
from celery_ext.dead_letters import DeadLetter
from celery_ext.dead_letters.store import Letter
from celery_ext.waiting import DelayedTask
from kombu_delayq.errors import UnreadableMessage
from kombu_delayq.message.rewrite import with_eta
from kombu_delayq.message.unacked import read_note
from kombu_delayq.store.lookup import Change
from kombu_delayq.store.types import Fetched, Held, Offer, Page, Requeued, Scanned, Waiting
from tests.support.messages import ETA_AT, ETA_MS, task_message

SECRET = "4111 1111 1111 1111"
BODY = json.dumps(task_message((SECRET,), task_id="some-id", eta=ETA_AT, conf={"task_serializer": "json"})).encode()
IN_PLAIN = json.dumps({**json.loads(BODY), "body": f'[["{SECRET}"], {{}}, {{}}]', "properties": {}}).encode()


def holders(body: bytes) -> list[Any]:
    message = Waiting("orders", "some-id", ETA_MS, 3, body)
    letter = DeadLetter("dead", body)
    return [
        message,
        DelayedTask(message),
        letter,
        letter.task,
        Offer("some-id", repr(ETA_MS), 3, body),
        Offer("some-id", repr(ETA_MS), 3, body.decode()),
        Change(message, ETA_MS, body),
        Letter(body, "queue", "orders", 3, body),
        Page([message], False, {}),
        Scanned([body], [b"1"], [1], False),
        Exported("orders", Offer("some-id", repr(ETA_MS), 3, body)),
        Held("tag", body),
        Fetched("tag", "orders", body),
        Requeued("tag", "orders", 3, body.decode()),
        read_note(json.dumps([json.loads(body), "", "orders"]).encode()),
        Fetched("tag", "orders", body),
        Requeued("tag", "orders", 3, body.decode()),
        Held("tag", body),
        read_note(b"[" + body + b',"","orders"]'),
    ]


@pytest.mark.parametrize("body", [BODY, IN_PLAIN], ids=["in base64", "in plain text"])
def test_no_repr_has_a_body_or_an_argument(body: bytes) -> None:
    """Nothing that has a message shows its arguments, nor the text in which they are, in its repr."""
    for each in holders(body):
        for text in (repr(each), str(each), f"{each}"):
            assert SECRET not in text
            assert json.loads(body)["body"][:30] not in text
            assert "argsrepr" not in text


def test_a_delayed_task_shows_which_task_it_is_and_when() -> None:
    """The repr of a waiting task has its name, id, queue and due time."""
    task = DelayedTask(Waiting("orders", "stored-id", ETA_MS, 3, BODY))
    due = "2100-01-01T00:00:00.123456+00:00"
    assert repr(task) == f"<DelayedTask: proj.task id='some-id' queue='orders' due={due}>"


@pytest.mark.parametrize("body", [None, b"", b"\xff", b"[]", b"{"])
def test_what_is_damaged_has_a_repr(body: bytes | None) -> None:
    """A message that is lost or damaged is shown as well."""
    assert "some-id" in repr(DelayedTask(Waiting("orders", "some-id", 1.0, 0, body)))
    assert "dead" in repr(DeadLetter("dead", body or b""))


def test_an_eta_that_cannot_be_replaced_tells_nothing_of_the_body() -> None:
    """The error about a damaged body of protocol 1 has no part of it."""
    message = task_message(conf={"task_protocol": 1}, eta=ETA_AT)
    for kind in ("application/json", "application/x-yaml", "application/x-msgpack"):
        damaged = {**message, "content-type": kind, "body": f'eta task "{SECRET}" \ud800 {{', "properties": {}}
        damaged["properties"] = {"correlation_id": "i"}
        with pytest.raises(UnreadableMessage) as error:
            with_eta(json.dumps(damaged).encode(), 1.0)
        assert SECRET not in str(error.value)
        assert error.value.__suppress_context__
    with pytest.raises(UnreadableMessage) as error:
        with_eta(f'{{"{SECRET}'.encode() + b"\xff", 1.0)
    assert SECRET not in str(error.value)
