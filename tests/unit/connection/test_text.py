"""Commands become the bytes that Redis gets."""

from typing import Any

import pytest
from redis.connection import Connection

from kombu_delayq.redis.replies import as_sent, packed


@pytest.mark.parametrize("rest", [(), ("a", 0), (b"\xff\r\n", "ü", "\udcff", "", 10**12, -1)])
def test_a_packed_command_is_that_of_the_redis_client(rest: tuple[Any, ...]) -> None:
    """The same bytes go over the wire, whatever is in the arguments, and for each command with the same start."""
    start = ("EVALSHA", "abc", 2, b"a key", "b\udcff", 0)
    for _ in range(2):
        assert packed(start, rest) == b"".join(Connection().pack_command(*as_sent((*start, *rest))))
