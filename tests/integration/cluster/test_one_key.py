"""A script that names its first key alone does what it does with all of them."""

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.cluster.commands import with_one_key
from kombu_delayq.redis import Command, as_sent, scripts

TEXT = """
redis.call('RPUSH', KEYS[1], unpack(ARGV))
redis.call('SET', KEYS[2], #KEYS)
local there = redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3])
local moved = redis.call('LMOVE', KEYS[1], KEYS[3], 'LEFT', 'RIGHT')
local none = redis.call('LMOVE', KEYS[2] .. 'none', KEYS[3], 'LEFT', 'RIGHT')
local wrong = redis.pcall('LMOVE', KEYS[2], KEYS[3], 'LEFT', 'RIGHT')
local gone = redis.call('UNLINK', KEYS[1], KEYS[2])
return { #ARGV, there, moved, none, type(wrong.err), gone, redis.sha1hex('x') }
"""


@pytest.fixture
def client(redis_server: PrivateRedis) -> redis.Redis:
    """A client of a database without keys."""
    client = redis_server.client()
    client.flushdb()
    return client


def test_keys_and_arguments_are_as_ever(client: redis.Redis) -> None:
    """The script sees all keys and arguments, and commands of several keys do the same one by one."""
    command: Command = ("EVAL", TEXT, 3, "{q}a", "{q}b", "{q}c", "x", "y")
    alone = with_one_key(command)
    assert alone is not None
    assert alone[2:5] == (1, "{q}a", 2)
    replies = []
    for one in (command, alone):
        replies.append(client.execute_command(*as_sent(one)))
        assert client.lrange("{q}c", 0, -1) in (["x"], [b"x"])
        client.delete("{q}c")
    assert replies[0] == replies[1]
    assert replies[0][:2] == [2, 2]


def test_a_cached_script_is_sent_by_its_text() -> None:
    """A script of ours is known by its SHA; of any other command, and of one with one key, there is no such form."""
    fetch = scripts.load("fetch")
    alone = with_one_key(("EVALSHA", fetch.sha, 2, "a", "b", 1))
    assert alone is not None
    assert fetch.text in alone[1]
    assert alone[2:] == (1, "a", 1, "b", 1)
    for other in (("EVALSHA", "0" * 40, 2, "a", "b"), ("EVALSHA", fetch.sha, 1, "a"), ("LPUSH", "a", "b")):
        assert with_one_key(other) is None


@pytest.mark.parametrize("name", ["EXISTS", "UNLINK", "DEL"])
def test_commands_of_several_keys_count_as_ever(client: redis.Redis, name: str) -> None:
    """A command that looks for keys or removes them counts those that are there, also in its other form."""
    keys = ("{q}a", "{q}none", "{q}b")
    alone = with_one_key((name, *keys))
    assert alone is not None
    assert alone[2:] == (1, "{q}a", 2, "{q}none", "{q}b")
    for command in ((name, *keys), alone):
        client.mset({"{q}a": 1, "{q}b": 1})
        assert client.execute_command(*as_sent(command)) == 2
    assert with_one_key((name, "{q}a")) is None
