"""Compact messages: what stays text, what is left out, and what is left as it is."""

from typing import Any

import pytest
from celery.app.task import Context

from kombu_delayq.message import bodies
from kombu_delayq.message.outgoing import DEFAULTS, TEXT, keep_text, omit_defaults, without_defaults


def encoded(**headers: Any) -> dict[str, Any]:
    return {"body": "W10=", "headers": headers, "properties": {"body_encoding": "base64"}}


def test_text_stays_text_and_bytes_do_not() -> None:
    """A body that is text is itself, and is read and rewritten as that; bytes stay in base64."""
    message = encoded()
    keep_text(message, "[]")
    assert (message["body"], message["properties"]) == ("[]", {"body_encoding": TEXT})
    assert bodies.unpacked(message) == b"[]"
    binary = encoded()
    keep_text(binary, b"\xff")
    assert binary == encoded()


NO_EMBED = '{"callbacks": null, "errbacks": null, "chain": null, "chord": null}'


def test_a_request_has_the_defaults_of_its_own() -> None:
    """``task.request`` of the Celery in use has the value of each header that may be missing."""
    for name, default in DEFAULTS.items():
        assert getattr(Context({}), name) is default


def test_only_defaults_are_left_out() -> None:
    """Headers with a value stay, also one that only equals the default, and those that have no default."""
    given = {"task": "a", "shadow": None, "eta": None, "retries": 0, "replaced_task_nesting": 0, "ignore_result": None}
    assert without_defaults(given) == {"task": "a", "eta": None, "ignore_result": None}
    values = {"retries": False, "replaced_task_nesting": 0.0, "shadow": "", "group_index": 0, "x": None}
    assert list(without_defaults(values).items()) == list(values.items())


def task(body: object, **more: Any) -> dict[str, Any]:
    headers = {"task": "a", "id": "one", "shadow": None}
    return {"body": body, "headers": headers, "content-type": "application/json", "properties": {}} | more


def test_a_body_says_nothing_of_callbacks_if_there_are_none() -> None:
    """A JSON body has an empty object instead; arguments that look so stay, and the caller's headers."""
    light = task(f'[["{NO_EMBED}]"], {{}}, {NO_EMBED}]')
    headers = light["headers"]
    omit_defaults(light)
    assert light["body"] == f'[["{NO_EMBED}]"], {{}}, {{}}]'
    assert light["headers"] == {"task": "a", "id": "one"}
    assert "shadow" in headers


@pytest.mark.parametrize(
    "message",
    [
        task(f"[[], {{}}, {NO_EMBED}]".encode()),
        task(f"[[], {{}}, {NO_EMBED}]", **{"content-type": "text/plain"}),
        task('[[], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": 1}]'),
    ],
)
def test_other_bodies_stay(message: dict[str, Any]) -> None:
    """Bytes, texts that are no JSON, and what has a callback or a workflow stay as they are."""
    body = message["body"]
    omit_defaults(message)
    assert message["body"] is body


def test_a_message_that_is_no_task_stays() -> None:
    """A message of kombu's own keeps its headers and its body, whatever they are."""
    plain = task(f"[[], {{}}, {NO_EMBED}]", headers={"shadow": None, "retries": 0})
    before = dict(plain)
    omit_defaults(plain)
    assert plain == before
