"""When the replies that come over a fetcher's connection are read, and handed on."""

from collections.abc import Iterator
from typing import Any

import pytest

from kombu_delayq.consume.pipelined import PipelinedConnection
from tests.support.conditions import DEADLINE_S
from tests.support.workers.harness import Proj


@pytest.fixture
def pipelined(proj: Proj) -> Iterator[PipelinedConnection]:
    """Returns a connection that nobody watches."""
    with proj.connection() as connection:
        pool = connection.default_channel.async_pool
        pipelined = PipelinedConnection(lambda: pool, lambda fd, reader: None, lambda fd: None, 10.0)
        yield pipelined
        pipelined.close()


def test_what_is_sent_by_a_taker_is_answered_later(pipelined: PipelinedConnection) -> None:
    """A reply that comes while others are handed on is left to be waited for, so that an event loop turns before it."""
    taken: list[Any] = []

    def take(replies: list[Any]) -> None:
        taken.extend(replies)
        pipelined.send([("ECHO", "later")], taken.extend)

    pipelined.send([("ECHO", "first")], take)
    pipelined.send([("ECHO", "second")], taken.extend)
    pipelined.read()
    assert taken == [b"first", b"second"]
    pipelined.read_within(DEADLINE_S)
    assert taken == [b"first", b"second", b"later"]


def test_what_was_read_with_a_reply_whose_taker_fails_is_handed_on(pipelined: PipelinedConnection) -> None:
    """An error of one taker keeps no reply from the next one."""
    taken: list[Any] = []

    def fail(replies: list[Any]) -> None:
        raise LookupError(replies)

    pipelined.send([("ECHO", "first")], fail)
    pipelined.send([("ECHO", "second")], taken.extend)
    with pytest.raises(LookupError):
        pipelined.read()
    pipelined.check()
    assert taken == [b"second"]
