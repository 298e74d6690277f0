"""What Redis's own log says of messages."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from tests.chaos.brokers.single import options
from tests.chaos.ledger.aof import POPPED, Trace, blamed, keep, kept_files
from tests.support.conditions import until
from tests.support.servers.redis_version import major_version

TASK = "publisher-ours-0.0.1"
MESSAGE = f'{{"headers": {{"id": "{TASK}"}}}}'
OTHER = '{"headers": {"id": "publisher-ours-0.0.2"}}'


@pytest.fixture
def server() -> Iterator[PrivateRedis]:
    with PrivateRedis(*options()) as server:
        yield server


def steps(server: PrivateRedis, kept: Path) -> list[str]:
    """Returns the steps of the task so far."""
    keep(server.directory, kept)
    return Trace([TASK]).read(kept_files(kept)).steps[TASK]


def test_a_message_that_brpop_took(server: PrivateRedis, tmp_path: Path):
    """A message that BRPOP took, and that nobody noted, is told from the others of its list."""
    client = server.client()
    client.lpush("chaos.mixed", MESSAGE)
    client.lpush("chaos.mixed", OTHER)
    client.brpop("chaos.mixed")
    found = steps(server, tmp_path)
    assert found == ["pushed to chaos.mixed", POPPED]
    assert blamed(found, "mixed", takes=True, early=False) == ("stock", POPPED)
    assert blamed(found, "mixed", takes=False, early=False)[0] == "mixed"


def test_a_message_that_was_taken_and_acknowledged(server: PrivateRedis, tmp_path: Path):
    """A message that was taken and noted at once, and then acknowledged, was in the hands of a consumer of ours."""
    client = server.client()
    client.lpush("chaos.mixed", MESSAGE)
    client.eval("redis.call('HSET', 'unacked', 'host:1:abc.7', redis.call('RPOP', KEYS[1])) return 1", 1, "chaos.mixed")
    client.hdel("unacked", "host:1:abc.7")
    found = steps(server, tmp_path)
    assert found[1:] == ["taken from chaos.mixed", "noted in unacked as host:1:abc.7", "out of unacked, host:1:abc.7"]
    assert blamed(found, "mixed", takes=True, early=False)[0] == "ours"
    assert blamed(found, "mixed", takes=True, early=True)[0] == "promised"


@pytest.mark.skipif(major_version() < 7, reason="before Redis 7 the log is one file, which a run does not let shrink")
def test_the_log_is_followed_over_its_files(server: PrivateRedis, tmp_path: Path):
    """When Redis writes a shorter log, the log files that were linked before are still there."""
    client = server.client()
    client.lpush("chaos.mixed", MESSAGE, OTHER)
    client.lmove("chaos.mixed", "landing", "RIGHT", "LEFT")
    keep(server.directory, tmp_path)
    client.bgrewriteaof()
    until(lambda: not client.info("persistence")["aof_rewrite_in_progress"], what="the log is written anew")
    client.lrem("landing", 1, MESSAGE)
    assert steps(server, tmp_path) == ["pushed to chaos.mixed", "moved to landing", "removed from landing"]


def test_a_task_that_redis_never_saw(server: PrivateRedis, tmp_path: Path):
    """Where the log has nothing of a task, its publisher was told what is not true."""
    assert blamed(steps(server, tmp_path), "ours", takes=True, early=False) == ("ours", "never written")
