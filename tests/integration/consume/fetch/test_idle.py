"""How consumers of many lists wait, and what a queue at rest costs a Redis with hash slots."""

from collections import Counter
from contextlib import suppress
from functools import partial
from itertools import takewhile
from threading import enumerate as all_threads
from time import monotonic
from typing import Any

import pytest
import redis
from kombu import Connection

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.cluster import SlotKeys
from kombu_delayq.consume import waits as consume_waits
from kombu_delayq.consume.pipelined import PipelinedConnection
from kombu_delayq.consume.waits import WaitBudget, Waits
from kombu_delayq.options import LAYOUTS
from kombu_delayq.store import DelayStore
from tests.support.conditions import until
from tests.support.looped import Looped, queue_of
from tests.support.store.keyspace import FUTURE_MS, waiting
from tests.support.workers.consumers import drain, publish
from tests.support.workers.harness import MakeProj, Proj
from tests.support.workers.held import KEYS

NAMES = [f"jobs{number}" for number in range(12)]
#: In hash slots each queue is asked about on its own.
QUEUES = [f"queue{number}" for number in range(20)]


def waits(proj: Proj) -> int:
    """Returns how many connections wait for a message."""
    clients: Any = proj.server.client().client_list()
    return sum(client["cmd"] == "blmove" for client in clients)


@pytest.mark.parametrize(("options", "count"), [({}, 12), ({"max_connections": 6}, 5)])
def test_as_many_queues_are_waited_for_as_the_options_allow(
    make_proj: MakeProj, own_server: PrivateRedis, options: dict[str, int], count: int
) -> None:
    """Without ``max_connections`` kombu's own limit of ten is none; messages of the other queues are found, too."""
    proj, received = make_proj(own_server), []  # no other test's connection is counted

    def waits_of_all() -> int:
        with suppress(TimeoutError):
            connection.drain_events(timeout=0.1)
        return waits(proj)

    with (
        proj.connection(consume="reliable", **options) as connection,
        connection.Consumer([*map(queue_of, NAMES)], on_message=received.append, prefetch_count=100),
    ):
        for name in NAMES:
            publish(connection, name, queue=name)
        drain(connection, received, len(NAMES))
        until(lambda: waits_of_all() >= count, what=f"{count} connections wait")
        assert waits(proj) == count


def test_a_list_for_which_no_connection_is_left_keeps_no_other_from_its_own(proj: Proj) -> None:
    """A list has its wait again after a message, also where another list comes first and has none."""
    with proj.connection() as connection:
        store, pool = connection.default_channel.store, connection.default_channel.async_pool
        connect = partial(PipelinedConnection, lambda: pool, lambda fd, reader: None, lambda fd: None, 10.0)
        idle = Waits(connect, WaitBudget(1), lambda commands, on_replies: None, bool)
        idle.wait(store, "host:1:aaaaaaaa", ["one"])
        [only] = idle.connections
        proj.server.client().lpush("one", "message")
        only.read()
        [in_flight] = idle.arrived
        assert in_flight.queue == "one"
        idle.wait(store, "host:1:aaaaaaaa", ["other", "one"])
        assert idle.connections == [only]
        assert len(idle.end_all()[0]) == 1
        idle.close()


def calls(client: redis.Redis, *names: str) -> list[int]:
    """Returns how often commands have been called, those of scripts included."""
    stats: Any = client.info("commandstats")
    return [stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in names]


def test_a_consumer_asks_once_a_second_for_a_queue(slots_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait lasts for longer than a second; what it does not cover is looked at by one command a second."""
    # None ends while a busy machine comes to the three seconds.
    monkeypatch.setattr(consume_waits, "LONGEST_WAIT_S", 60.0)
    monkeypatch.setattr(consume_waits, "FRACTION_OF_LEASE", 1.0)
    with Looped(Connection(slots_server.url.replace("redis://", "delayq://")), *QUEUES) as looped:
        looped.until(looped.waits_for(*QUEUES))
        client = slots_server.client()
        about = SlotKeys().consumed(QUEUES[-1])
        looped.until(lambda: '"subscribed": true' in str(client.hvals(about)), "each queue has heard of it")
        before, begun = calls(client, "blmove", "exists", "evalsha", "eval"), monotonic()
        looped.until(lambda: monotonic() - begun > 3)
        after = calls(client, "blmove", "exists", "evalsha", "eval")
        seconds = monotonic() - begun
        waits, looks, *scripts = (now - then for now, then in zip(after, before, strict=True))
        # One look of each queue a second by the consumer, and one by the leading transfer worker.
        assert waits == 0
        assert looks <= 2 * (seconds + 1) * len(QUEUES)
        assert sum(scripts) < len(QUEUES)
        with Connection(slots_server.url.replace("redis://", "delayq://")) as sender:
            publish(sender, "rare", queue=QUEUES[7], priority=9)
        looped.until(lambda: looped.received == ["rare"], "a priority that nobody waits for is found")


def sent(looped: Looped, client: redis.Redis, seconds: float) -> Counter[str]:
    """Lets a consumer turn for so long. Returns how often each command was sent, without those of scripts."""
    with client.monitor() as monitor:
        begun = monotonic()
        looped.until(lambda: monotonic() - begun > seconds)
        client.echo("the end")
        heard = takewhile(lambda each: "the end" not in each["command"], iter(monitor.next_command, None))
        return Counter(each["command"].split(" ")[0].upper() for each in heard if each["client_type"] != "lua")


@pytest.mark.parametrize("transfers", [True, False])
def test_an_idle_consumer_asks_for_no_list_of_which_the_leader_tells(own_server: PrivateRedis, transfers: bool) -> None:
    """Its process then sends one command a second, and without a leader its own look; a rare message is found."""
    url, client = own_server.url.replace("redis://", "delayq://"), own_server.client()
    with Looped(Connection(url, transport_options={"transfer": transfers}), "jobs") as looped:
        looped.until(looped.waits_for("jobs"))
        looped.until(lambda: '"subscribed": true' in str(client.hvals(KEYS.consumed(""))), "it has subscribed")
        looped.until(lambda: bool(sent(looped, client, 2.0)["EXISTS"]) is not transfers, "it hears of its lists")
        found = sent(looped, client, 5.0)
        assert found.total() <= 8, found
        assert bool(found["EXISTS"]) is not transfers
        assert not {"PUBSUB", "HGETALL"} & found.keys()
        with Connection(url, transport_options={"transfer": False}) as sender:
            publish(sender, "rare", queue="jobs", priority=9)
        looped.until(lambda: looped.received == ["rare"], "a priority that nobody waits for is found")


def test_a_leader_runs_no_script_for_an_empty_queue(slots_server: PrivateRedis) -> None:
    """Queues without delayed messages cost one command each, and the one that gets a message is found the next time."""
    until(
        lambda: not [each for each in all_threads() if each.name == "delayq-transfer"],
        what="those of a test before end",
    )
    store = DelayStore(redis.Redis(port=slots_server.port), SlotKeys())
    store.client.flushall()
    names = ("exists", "evalsha", "eval", "zrange")
    for due in ({}, {"queue7": FUTURE_MS}, {"queue7": FUTURE_MS}, {}):
        if due and not store.queues.size("queue7"):
            store.delivery.offer("queue7", waiting("i", FUTURE_MS))
        elif not due:
            store.lookup.cancel(["queue7"], ["i"])
        before = calls(store.client, *names)
        assert {form.queue: ms for form, ms in store.delivery.heads(QUEUES).due_ms.items()} == due
        looks, *scripts, reads = (now - then for now, then in zip(calls(store.client, *names), before, strict=True))
        assert looks <= len(QUEUES) + 1
        assert sum(scripts) <= 3
        assert reads <= 2 * len(LAYOUTS)
    store.close()
