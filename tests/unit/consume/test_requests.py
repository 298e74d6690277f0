"""Requests for messages, and what becomes of one whose reply nobody waits for."""

from typing import Any

import pytest
from redis.exceptions import ResponseError

from kombu_delayq.consume.lost import LostRequests
from kombu_delayq.consume.requests import Requests
from kombu_delayq.store import Request


class _Consumer:
    """What requests use of a consumer."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.lost = LostRequests()


class _Connection:
    """A connection that keeps what is called with the replies."""

    is_late = False

    def send(self, commands: list[Any], on_replies: Any) -> None:
        """Notes a call."""
        self.answer = on_replies


class _Store:
    """A store in which nothing goes back."""

    def __init__(self) -> None:
        self.keys = self.fetching = self

    def slot_group(self, queue: str) -> str:
        """Returns the one slot group."""
        return ""

    def fetch_command(self, request: Request, *, by_text: bool) -> tuple[str, ...]:
        """Returns some command."""
        return ("FETCH",)

    def recover(self, *_: Any, **__: Any) -> int:
        """Puts back nothing."""
        return 0


@pytest.mark.parametrize(("reply", "expected"), [(ResponseError("OOM"), []), ([], [None])])
def test_a_reply_to_a_request_that_was_given_up(reply: Any, expected: list[Any]) -> None:
    """Once Redis has run it, no message of it is in flight any more; where Redis refuses it, they still are."""
    told, store, connection = list[Any](), _Store(), _Connection()
    requests = Requests(connection, _Consumer(), "")  # type: ignore[arg-type]
    request = Request(consumer="c", first=1, most=5, queues=["celery"])
    requests.ask(store, [], request, lambda _: None, lambda _, found: told.append(found))  # type: ignore[arg-type]
    requests.give_up(store, request)  # type: ignore[arg-type]
    connection.answer([reply])
    assert told == expected
    assert requests.are_unsure
