"""``delayq doctor`` and ``delayq repair`` find what processes that were killed leave of remote control."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.doctor import Finding
from tests.support.commands.shell import Audit, Server, lines, run
from tests.support.conditions import until
from tests.support.examining import look
from tests.support.store.keyspace import contents, idle_for
from tests.support.workers.harness import APPS, TRANSPORT, MakeProj, Proj

TABLE = "_kombu.binding.reply.celery.pidbox"
#: An hour, and what is not one yet.
OLD_S, YOUNG_S = 3600, 3500
NONE = {"replies": 0, "bindings": 0}

#: Asks all workers, as kombu does, and reads no answer; and asks, and prints answers for as long as the process lives.
ASKS = """
import time
from proj import app
with app.connection_for_write() as connection:
    app.control.mailbox(connection)._publish("ping", {}, reply_ticket="ticket")
    time.sleep(600)
"""
READS = "from proj import app; app.control.ping(timeout=600, callback=lambda reply: print(reply, flush=True))"

Ask = Callable[[Proj, str], "subprocess.Popen[bytes]"]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """Starts a process that asks the workers."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(proj: Proj, program: str) -> "subprocess.Popen[bytes]":
        env = {**os.environ, **proj.environment()}
        processes.append(subprocess.Popen([sys.executable, "-c", program], cwd=APPS, env=env, stdout=subprocess.PIPE))
        return processes[-1]

    yield start
    for process in processes:
        kill(process)


def kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate(timeout=10)


def queues(client: redis.Redis) -> list[str]:
    """Returns the queues of replies that hold any."""
    return [key.decode() for key in client.keys("*.reply.celery.pidbox") if client.type(key) == b"list"]


def age(client: redis.Redis, *keys: str, idle_s: int = OLD_S) -> None:
    for key in keys:
        idle_for(client, key, idle_s)


def found_by_doctor(proj: Proj) -> list[Finding]:
    with proj.connection() as connection:
        return look("leftovers", proj.app, connection.default_channel.store)


def repaired(server: Server, *args: str, code: int = 0) -> dict[str, Any]:
    """Runs a repair, which finds nothing but leftovers. Returns how many."""
    found = lines(server, "repair", *args, code=code)
    assert [{*line} for line in found] in ([], [{"leftovers", "mended"}])
    return {kind: line["leftovers"][kind] for line in found for kind in NONE} or NONE


@pytest.mark.journey
@pytest.mark.wide
@pytest.mark.parametrize("transport", [TRANSPORT, ""], ids=["ours", "stock"])
def test_what_killed_callers_leave_is_found_and_removed(
    make_proj: MakeProj, raw_client: redis.Redis, ask: Ask, audit: Audit, transport: str
) -> None:
    """Replies that nobody has read for an hour go with their names; those of callers that live stay, and so do workers.

    The leftovers are real: a process is killed before it reads the replies to its question.
    """
    proj = make_proj(broker_transport=transport)
    proj.worker(pool="solo")
    proj.await_answers()
    killed = ask(proj, ASKS)
    [left] = until(lambda: queues(raw_client))
    kill(killed)
    assert raw_client.ttl(left) == -1
    names = raw_client.scard(TABLE)
    server = proj.server
    assert repaired(server, "--dry-run") == NONE
    age(raw_client, left, TABLE, idle_s=YOUNG_S)
    assert repaired(server, "--yes") == NONE
    age(raw_client, left)
    assert repaired(server, "--dry-run", code=1) == {"replies": 1, "bindings": 0}
    [found] = found_by_doctor(make_proj())
    assert (found.level, "1 queue of replies" in found.found) == ("notice", True)
    assert (queues(raw_client), raw_client.scard(TABLE)) == ([left], names)
    assert repaired(server, "--yes") == {"replies": 1, "bindings": 0}
    [line] = audit()
    assert (line["action"], line["what"]["outcomes"]) == ("repair", {"leftovers": 1})
    assert (queues(raw_client), raw_client.scard(TABLE)) == ([], names - 1)
    proj.await_answers()


@pytest.mark.journey
@pytest.mark.wide
def test_names_that_nobody_uses_go_and_nobody_misses_them(
    make_proj: MakeProj, raw_client: redis.Redis, ask: Ask
) -> None:
    """The names of dead callers and workers go together once nobody has used them for an hour.

    A caller and a worker that live have lost theirs, too, and still ask and answer.
    """
    proj = make_proj(broker_transport="")
    worker = proj.worker("-E", pool="solo")
    proj.await_answers()
    assert proj.app.control.ping(timeout=10, limit=1)
    killed = ask(proj, READS)
    assert killed.stdout is not None
    # The worker's answer looks its caller's name up, so the names are used once more.
    assert b"pong" in killed.stdout.readline()
    kill(killed)
    worker.process.send_signal(signal.SIGSTOP)  # its heartbeat, each 2 s, uses the names of who hears events
    tables = [key.decode() for key in raw_client.keys("_kombu.binding.*") if re.search(rb"pidbox|celeryev", key)]
    assert len(tables) in (2, 3)
    age(raw_client, *tables)
    assert repaired(proj.server, "--yes") == {"replies": 0, "bindings": len(tables)}
    assert not raw_client.exists(*tables)
    worker.process.send_signal(signal.SIGCONT)
    assert proj.app.control.ping(timeout=10, limit=1)
    proj.await_answers()


@pytest.mark.wide
def test_a_caller_that_waits_keeps_its_name(make_proj: MakeProj, raw_client: redis.Redis, ask: Ask) -> None:
    """A caller that has waited for some minutes gets the answer of a worker that starts only now."""
    proj = make_proj()
    ask(proj, READS.replace("ping(", "ping(limit=1, "))
    until(lambda: raw_client.exists(TABLE))
    age(raw_client, TABLE, idle_s=YOUNG_S)
    assert repaired(proj.server, "--yes") == NONE
    assert raw_client.scard(TABLE) == 1


def test_other_keys_of_such_names_stay(broker: PrivateRedis, raw_client: redis.Redis) -> None:
    """What only looks like a queue of replies, expires by itself or is under another prefix is left alone."""
    queue = "6f1f2a6e-8f3e-3c1a-9f31-0e5a3b1c2d4e.reply.celery.pidbox"
    lists = [f"shop.{queue}", queue.removeprefix("6"), "a.reply.celery.pidbox", f"{queue}x", "jobs.pidbox"]
    for key in lists:
        raw_client.lpush(key, "a")
    sets = [queue, "_kombu.binding.jobs.pidbox", "_kombu.binding.celery", "shop._kombu.binding.reply.celery.pidbox"]
    for key in sets:
        raw_client.sadd(key, "a")
    expiring = queue.replace("celery", "other")
    raw_client.lpush(expiring, "a")
    raw_client.expire(expiring, 3600)
    age(raw_client, *lists, *sets, expiring, idle_s=10 * OLD_S)
    before = contents(raw_client)
    assert repaired(broker, "--yes") == NONE
    assert contents(raw_client) == before


def test_many_are_removed_page_by_page_also_under_a_prefix(broker: PrivateRedis, raw_client: redis.Redis) -> None:
    """A thousand leftovers of an app with a ``global_keyprefix`` go, with their names, and no other name goes."""
    oids = [f"{number:08x}-8f3e-3c1a-9f31-0e5a3b1c2d4e" for number in range(1000)]
    for oid in oids:
        raw_client.lpush(f"shop*.{oid}.reply.celery.pidbox", "reply")
        raw_client.sadd(f"shop*.{TABLE}", f"{oid}\x06\x16\x06\x16{oid}.reply.celery.pidbox")
        age(raw_client, f"shop*.{oid}.reply.celery.pidbox")
    raw_client.sadd(f"shop*.{TABLE}", "another")
    options = ("-o", "global_keyprefix=shop*.")
    shown = run(broker, *options, "repair", "--yes").stdout
    assert "1,000 queues of replies and 0 sets of names" in shown
    assert raw_client.keys("*") == [f"shop*.{TABLE}".encode()]
    assert raw_client.smembers(f"shop*.{TABLE}") == {b"another"}


def test_where_redis_does_not_know_the_age_nothing_is_removed(own_server: PrivateRedis) -> None:
    """With an eviction policy by frequency, Redis knows of no key since when it is idle: all stay, without an error."""
    client = redis.Redis(port=own_server.port)
    key = "6f1f2a6e-8f3e-3c1a-9f31-0e5a3b1c2d4e.reply.celery.pidbox"
    client.lpush(key, "a")
    client.config_set("maxmemory-policy", "allkeys-lfu")
    assert repaired(own_server, "--yes") == NONE
    assert client.exists(key)
