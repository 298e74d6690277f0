"""Checks of Redis, on real servers that are set up badly."""

import re
import shutil
from time import time
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.doctor import servers
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from tests.support.conditions import until
from tests.support.examining import levels, look
from tests.support.journal.stores import journaled
from tests.support.store.keyspace import keys_at


def store_of(server: PrivateRedis, user: str | None = None, **options: Any) -> DelayStore:
    client = redis.Redis(port=server.port, username=user, password=user and "pw")
    return DelayStore(client, keys_at(server)(), options=Options(**options))


def test_a_fresh_server_passes_but_keeps_nothing(redis_server: PrivateRedis) -> None:
    """The servers of the tests write nothing to disk; all else is as it should be."""
    store = store_of(redis_server)
    for check in ("redis-version", "lua", "eviction", "memory", "clock"):
        assert look(check, store=store) == [], check
    [found] = look("persistence", store=store)
    assert (found.level, "keeps nothing on disk" in found.found) == ("error", True)


def test_a_server_without_lua_is_an_error() -> None:
    """Where the server knows no EVAL, the check says what to load."""
    with PrivateRedis("--rename-command", "EVAL", "", "--rename-command", "EVALSHA", "") as server:
        [found] = look("lua", store=store_of(server))
    assert (found.level, "runs no Lua scripts" in found.found, "module" in found.do) == ("error", True, True)


@pytest.mark.parametrize(
    ("policy", "limit", "level", "said"),
    [
        ("allkeys-lru", 0, "warning", "maxmemory-policy allkeys-lru"),  # nothing is dropped yet
        ("allkeys-lru", 100_000_000, "error", "maxmemory-policy allkeys-lru"),
        ("volatile-lru", 100_000_000, "warning", "it may drop queues with x-expires"),
        ("volatile-ttl", 100_000_000, "warning", "it may drop queues with x-expires"),
    ],
)
def test_a_server_that_evicts_is_found(
    own_server: PrivateRedis, policy: str, limit: int, level: str, said: str
) -> None:
    """It is worse with a limit, and better where only keys with a TTL go, as delayed messages have none."""
    client = own_server.client()
    client.config_set("maxmemory-policy", policy)
    client.config_set("maxmemory", limit)
    [found] = look("eviction", store=store_of(own_server))
    assert (found.level, said in found.found, "noeviction" in found.do) == (level, True, True)


def test_what_is_on_disk_decides(own_server: PrivateRedis) -> None:
    """Nothing, snapshots, an append-only file; a journal with all messages makes it a notice."""
    client, store = own_server.client(), store_of(own_server)
    client.config_set("save", "3600 1")
    [found] = look("persistence", store=store)
    assert (found.level, "has snapshots alone" in found.found) == ("warning", True)
    with_all = journaled(own_server.port, {"journal_url": "sqlite://", "journal": "all"})
    assert levels(look("persistence", store=with_all)) == ["notice"]
    client.config_set("appendonly", "yes")
    assert look("persistence", store=store) == []


def test_a_snapshot_that_failed_is_an_error(own_server: PrivateRedis) -> None:
    """Redis may refuse all writes after it."""
    client = own_server.client()
    client.config_set("appendonly", "no")
    client.set("key", "value")
    shutil.rmtree(own_server.directory)
    client.bgsave()
    until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
    assert "could not write its snapshot the last time" in look("persistence", store=store_of(own_server))[0].found


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.5, []), (0.85, ["warning"]), (0.97, ["error"]), (1000, ["error.*it is full: publishing fails"])],
)
def test_memory_that_is_nearly_full_is_found(own_server: PrivateRedis, share: float, expected: list[str]) -> None:
    """From 80 % on it is a warning, from 95 % on an error; beyond maxmemory publishing fails already."""
    client = own_server.client()
    client.config_set("maxmemory", round(client.info("memory")["used_memory"] / share))
    found = [f"{each.level}: {each.found}" for each in look("memory", store=store_of(own_server))]
    assert all(re.match(wanted, text) for wanted, text in zip(expected, found, strict=True)), found


def test_a_replica_is_an_error(own_server: PrivateRedis) -> None:
    """It takes no writes."""
    if own_server.slots:
        pytest.skip("not in hash slots: REPLICAOF is refused in cluster mode")
    own_server.client().replicaof("localhost", 1)
    [found] = look("redis-version", store=store_of(own_server))
    assert (found.level, "is a replica" in found.found) == ("error", True)


@pytest.mark.parametrize(
    ("off_s", "level", "said"),
    [(5.0, "warning", "ahead of"), (-5.0, "warning", "too early"), (600.0, "error", "countdowns from here end 10m")],
)
def test_a_wrong_clock_is_found(
    redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch, off_s: float, level: str, said: str
) -> None:
    """It says by how much countdowns are wrong, and which way."""
    monkeypatch.setattr(servers, "time", lambda: time() + off_s)
    [found] = look("clock", store=store_of(redis_server))
    assert (found.level, said in found.found) == (level, True), found


def test_what_redis_does_not_tell_is_a_notice(own_server: PrivateRedis) -> None:
    """A user without INFO learns that nothing was checked; one without CONFIG does not learn how Redis saves."""
    acl = own_server.client().execute_command
    acl("ACL", "SETUSER", "poor", "on", ">pw", "+hello", "+auth", "+time", "~*")
    acl("ACL", "SETUSER", "fair", "on", ">pw", "+hello", "+auth", "+info", "~*")
    for check in ("redis-version", "eviction", "memory", "persistence"):
        [found] = look(check, store=store_of(own_server, "poor"))
        assert (found.level, "not checked" in found.found) == ("notice", True)
    assert look("eviction", store=store_of(own_server, "fair")) == []
    [found] = look("persistence", store=store_of(own_server, "fair"))
    assert (found.level, "does not tell how else" in found.found) == ("notice", True)
