"""What servers say of themselves, and how their clocks go."""

from time import time

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.doctor import servers
from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import keys_at


def _store(server: PrivateRedis, **user: str) -> DelayStore:
    return DelayStore(redis.Redis(port=server.port, **user), keys_at(server)())


def test_a_server_tells_its_settings_and_its_clock(redis_server: PrivateRedis) -> None:
    """By its address: the fields of INFO, a setting, and an offset that is no more than it is unsure about."""
    found = _store(redis_server).part(servers.Servers)
    [(name, info)] = found.info().items()
    assert name == f"localhost:{redis_server.port}"
    assert info["maxmemory_policy"] == "noeviction"
    assert (found.setting("save"), found.setting("nonsense")) == ({name: ""}, {name: None})
    [offset] = found.clocks().values()
    assert abs(offset.ahead_s) <= offset.unsure_s + 0.1


@pytest.mark.parametrize("off_s", [90.0, -90.0])
def test_a_wrong_clock_is_measured(redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch, off_s: float) -> None:
    """Positive where this process is ahead of Redis."""
    monkeypatch.setattr(servers, "time", lambda: time() + off_s)
    [offset] = _store(redis_server).part(servers.Servers).clocks().values()
    assert offset.ahead_s == pytest.approx(off_s, abs=offset.unsure_s + 0.1)


def test_a_server_that_refuses_says_nothing(own_server: PrivateRedis) -> None:
    """A user without the rights gets no fields, and settings are unknown."""
    own_server.client().execute_command("ACL", "SETUSER", "poor", "on", ">pw", "+hello", "+auth", "+time", "~*")
    found = _store(own_server, username="poor", password="pw").part(servers.Servers)
    assert list(found.info().values()) == [{}]
    assert list(found.setting("save").values()) == [None]
