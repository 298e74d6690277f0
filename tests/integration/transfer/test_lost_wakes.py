"""Announcements of new heads that do not arrive, and transfer workers that compete."""

import time

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from tests.support.conditions import DEADLINE_S, until
from tests.support.servers.proxies import Proxy
from tests.support.workers.harness import MakeProj
from tests.support.workers.held import KEYS
from tests.support.workers.transfers import Transfer, arrived, listeners, offer

#: A lost announcement costs less than two poll intervals of 1 s; the rest is for a busy machine.
LATE_S = 30.0

pytestmark = pytest.mark.both_layouts


class _Mute(Keys):
    """Announces new heads where nobody listens."""

    @property
    def wake(self) -> str:
        return "nobody"

    def channel(self, queue: str) -> str:
        return "nobody"


def test_an_announcement_that_nobody_heard_costs_one_poll(client: redis.Redis, transfer: Transfer, layout: str) -> None:
    """A new head that was never announced to the leader is delivered all the same, and once."""
    transfer()
    options = Options(layout=layout)
    mute = DelayStore(client, _Mute(), options=options)
    offer(mute, "far", 300)
    until(lambda: listeners(client, layout) == 1)
    offer(DelayStore(client, KEYS, options=options), "now", 0.05)
    until(lambda: arrived(client) == {"now": 1}, what="the leader waits for the message that is due far away")
    offer(mute, "near", 0.3)
    until(lambda: arrived(client) == {"now": 1, "near": 1}, LATE_S)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_redis_that_is_far_away(
    redis_server: PrivateRedis, client: redis.Redis, transfer: Transfer, layout: str, workers: int
) -> None:
    """Messages come also where a look at Redis takes longer than the interval between looks."""

    def late(reply: bytes) -> bytes:
        time.sleep(0.03)  # the distance
        return reply

    with Proxy(redis_server.port, on_reply=late) as proxy:
        transfer(workers, server=proxy, poll_interval=0.05)
        offer(DelayStore(client, KEYS, options=Options(layout=layout)), "one", 0.3)
        until(lambda: arrived(client) == {"one": 1}, LATE_S)
        for worker in transfer(0):
            worker.stop(DEADLINE_S)


@pytest.mark.wide
def test_a_user_without_the_channel_is_served_by_polls(make_proj: MakeProj, own_server: PrivateRedis) -> None:
    """Where an ACL forbids the channel of announcements, tasks run once and in time, and the log says so once."""
    own_server.client().execute_command(
        "ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "resetchannels", "&/0.celery.pidbox"
    )
    proj = make_proj(own_server, broker_url=f"redis://app:secret@127.0.0.1:{own_server.port}/0")
    worker = proj.worker()
    due = time.time() + 1
    proj.send("record", "far", countdown=300, retry=False)
    proj.send("record", "near", countdown=1, retry=False)
    [run] = proj.await_runs(1)
    assert due <= run["at"] < due + LATE_S
    assert until(lambda: worker.log.count("delayed messages are noticed only every poll interval")) == 1
