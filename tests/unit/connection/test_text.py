"""Commands become the bytes that Redis gets."""

from typing import Any

import pytest
from redis.connection import Connection

from kombu_delayq.redis import as_sent, packed, packed_commands


@pytest.mark.parametrize("rest", [(), ("a", 0), (b"\xff\r\n", "ü", "\udcff", "", 10**12, -1)])
def test_a_packed_command_is_that_of_the_redis_client(rest: tuple[Any, ...]) -> None:
    """The same bytes go over the wire, whatever is in the arguments, and for each command with the same start."""
    start = ("EVALSHA", "abc", 2, b"a key", "b\udcff", 0)
    for _ in range(2):
        assert packed(start, rest) == b"".join(Connection().pack_command(*as_sent((*start, *rest))))


@pytest.mark.parametrize("odd", [("SET", "odd", 1.5), ("SET", "odd", memoryview(b"x")), ("OBJECT IDLETIME", "a")])
def test_packed_commands_are_those_of_the_redis_client(odd: tuple[Any, ...]) -> None:
    """Names of two words, and arguments of any type that the client takes, are sent as the client sends them."""
    connection = Connection()
    commands: list[tuple[Any, ...]] = [("SET", "a", "b\udcff"), ("ZADD", "z", 3, "ü"), ("GET", b"a")]
    for several in (commands, [*commands, odd]):
        assert b"".join(packed_commands(connection, several)) == b"".join(
            b"".join(connection.pack_command(*as_sent(command))) for command in several
        )
