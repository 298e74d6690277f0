"""Lighter messages: what is cut, what stays text, and what is left as it is."""

from typing import Any

import pytest

from kombu_delayq.message import bodies
from kombu_delayq.message.lighter import CUT, TEXT, cut, lighten


def encoded(**headers: Any) -> dict[str, Any]:
    return {"body": "W10=", "headers": headers, "properties": {"body_encoding": "base64"}}


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [("(1, 2)", None, "(1, 2)"), ("(1, 2)", 6, "(1, 2)"), ("(1, 2)", 2, "(1...cut"), ("(1,)", 0, "...cut")],
)
def test_a_long_text_is_cut_and_says_so(text: str, most: int | None, expected: str) -> None:
    """A text that is too long ends in the word, and is cut once only."""
    assert cut(text, most) == expected
    assert cut(expected, most) == expected


def test_the_senders_headers_stay_as_they_are() -> None:
    """The headers that Celery goes on to use keep their texts; those of the message are cut, in their places."""
    headers = {"argsrepr": "(1, 2, 3)", "x": "y" * 50, "kwargsrepr": "{}"}
    message = encoded()
    message["headers"] = headers
    lighten(message, "[]", 4, text_bodies=False)
    assert headers["argsrepr"] == "(1, 2, 3)"
    assert list(message["headers"].items()) == [("argsrepr", "(1, " + CUT), ("x", "y" * 50), ("kwargsrepr", "{}")]
    assert message["body"] == "W10="


@pytest.mark.parametrize("header", [None, 5, ["x" * 50]])
def test_headers_of_others_are_not_looked_into(header: Any) -> None:
    """A message that is no task may have anything under these names."""
    message = encoded(argsrepr=header)
    lighten(message, "[]", 4, text_bodies=True)
    assert message["headers"] == {"argsrepr": header}


def test_text_stays_text_and_bytes_do_not() -> None:
    """A body that is text is itself, and is read and rewritten as that; bytes stay in base64."""
    message = encoded()
    lighten(message, "[]", None, text_bodies=True)
    assert (message["body"], message["properties"]) == ("[]", {"body_encoding": TEXT})
    assert bodies.unpacked(message) == b"[]"
    binary = encoded()
    lighten(binary, b"\xff", None, text_bodies=True)
    assert binary == encoded()
