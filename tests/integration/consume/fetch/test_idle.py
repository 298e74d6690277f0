"""How consumers of many lists wait: which of the lists have a connection, and what becomes of the others."""

from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.consume.idle import IdleWaits, WaitBudget
from kombu_delayq.consume.pipelined import PipelinedConnection
from tests.support.conditions import until
from tests.support.workers.consumers import drain, publish, queues
from tests.support.workers.harness import MakeProj, Proj

NAMES = [f"jobs{number}" for number in range(12)]


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
        connection.Consumer(queues(*NAMES), on_message=received.append, prefetch_count=100),
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
        connect = partial(PipelinedConnection, lambda: pool, lambda fd, line: None, lambda fd: None, 10.0)
        waits = IdleWaits(connect, WaitBudget(1), lambda commands, on_replies: None, bool)
        waits.wait(store, "host:1:aaaaaaaa", ["one"])
        [only] = waits.connections
        proj.server.client().lpush("one", "message")
        only.read()
        [landing] = waits.landings(end=False)[1]
        assert landing.queue == "one"
        waits.wait(store, "host:1:aaaaaaaa", ["other", "one"])
        assert waits.connections == [only]
        assert len(waits.landings(end=True)[0]) == 1
        waits.close()
