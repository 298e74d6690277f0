"""Workers that die, or are taken for dead: what they held runs again soon."""

import os
import signal
from time import sleep

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import stays, until
from tests.support.workers.harness import MakeProj, Proj, Worker
from tests.support.workers.held import in_hand
from tests.support.workers.visibility import swept_after

pytestmark = pytest.mark.wide

TTL_S = 4.0
#: How long a task takes that is longer than a lease, and than a visibility timeout of twice that, in s.
LONG_S = 2.5 * TTL_S
OPTIONS = {"consumer_ttl": TTL_S, "poll_interval": 0.2}


@pytest.fixture
def fleet(make_proj: MakeProj) -> Proj:
    """The app, with short leases."""
    return make_proj(broker_transport_options=OPTIONS, worker_prefetch_multiplier=4, include=["stock_tasks"])


def nothing_is_left(proj: Proj) -> bool:
    """Whether no message waits or is in hand."""
    client = proj.server.client()
    return not (in_hand(client) or client.exists("celery")) and not client.keys("*landing*")


def holds(proj: Proj, count: int) -> bool:
    """Whether so many messages are in hand."""
    return int(in_hand(proj.server.client())) == count


def test_a_stopped_worker_is_taken_for_dead_and_says_so(fleet: Proj) -> None:
    """What it held runs in another worker; when it goes on, it says that its messages run twice, and works on."""
    stopped = fleet.worker(pool="threads", concurrency=2)
    fleet.send("gated_late", "gate", "slow")
    fleet.await_runs(1)
    os.kill(stopped.process.pid, signal.SIGSTOP)
    fleet.journal.set("gate", 1)
    other = fleet.worker(pool="threads", concurrency=2)
    until(lambda: len(fleet.runs(value="slow")) == 2)
    assert [run["redelivered"] for run in fleet.runs(value="slow")] == [False, True]
    os.kill(stopped.process.pid, signal.SIGCONT)
    until(lambda: "was silent for longer than consumer_ttl" in stopped.log)
    until(lambda: "1 messages were acknowledged that this consumer no longer held" in stopped.log)
    until(lambda: nothing_is_left(fleet))
    other.stop()
    fleet.send("record", "later")
    [run] = fleet.await_runs(1, value="later")
    assert run["pid"] == stopped.process.pid
    assert len(fleet.runs(value="slow")) == 2


@pytest.mark.parametrize("pool", ["prefork", "solo"])
def test_a_task_longer_than_lease_and_visibility_timeout_runs_once(make_proj: MakeProj, pool: str) -> None:
    """A worker keeps what it holds, also beside a stock worker that sweeps each second, and other transfer workers."""
    proj = make_proj(broker_transport_options={**OPTIONS, **swept_after(2 * TTL_S)})
    options = {name: value for name, value in proj.conf["broker_transport_options"].items() if name not in OPTIONS}
    worker = proj.worker(pool=pool, concurrency=1)
    for value in range(3):
        proj.send("late_acked", LONG_S if value == 0 else 0, value)
    proj.await_runs(1)
    proj.worker("-Q", "elsewhere", pool="solo", broker_transport="", broker_transport_options=options)
    proj.worker("-Q", "another", pool="solo")
    runs = proj.await_runs(3, 60)
    until(lambda: nothing_is_left(proj))
    assert [run["value"] for run in runs] == [0, 1, 2]
    assert {run["pid"] for run in runs} == {proj.runs()[0]["pid"]}
    assert "consumer_ttl" not in worker.log


def test_a_silent_redis_kills_no_consumer(make_proj: MakeProj, own_server: PrivateRedis) -> None:
    """When Redis does not answer for longer than all leases, living workers keep what they hold, and it runs once."""
    proj = make_proj(own_server, broker_transport_options=OPTIONS)
    workers = [proj.worker(concurrency=1, wait=False) for _ in range(2)]
    for worker in workers:
        worker.ready()
    for value in range(2):
        proj.send("late_acked", LONG_S, value)
    proj.await_runs(2)
    os.kill(own_server.pid, signal.SIGSTOP)
    sleep(1.5 * TTL_S)  # for so long Redis is silent
    os.kill(own_server.pid, signal.SIGCONT)
    until(lambda: nothing_is_left(proj), 60)
    assert sorted(run["value"] for run in proj.runs()) == [0, 1]
    assert not [line for worker in workers for line in worker.log.splitlines() if "consumer_ttl" in line]


@pytest.mark.journey
def test_a_poison_task_ends_among_the_dead_letters(make_proj: MakeProj) -> None:
    """A task that kills its workers is buried with its last allowed death, and replayed when its cause is gone."""
    options = {**OPTIONS, "delivery_limit": 2, "dead_letter_queue": "graves"}
    proj = make_proj(broker_transport_options=options, worker_prefetch_multiplier=1)
    sent = proj.send("poison", 2)
    proj.send("record", "behind")

    def dies() -> Worker:
        worker = proj.worker(pool="solo")
        until(lambda: not worker.alive(), 30, "the task kills the worker")
        return worker

    dies()
    dies()
    lives = proj.worker(pool="solo")
    [run] = proj.await_runs(1, value="behind")
    assert run["pid"] == lives.process.pid
    until(lambda: nothing_is_left(proj))
    assert [run["deaths"] for run in proj.runs(name="poison")] == [None, 1]
    until(lambda: "1 went to the dead letters in 'graves', because of delivery_limit=2" in lives.log)
    listed = proj.celery("delayq", "dead-letters", "list")
    assert "queue graves: 1 dead letter" in listed
    assert sent.id in listed
    assert "2 consumers died with it in their hands" in listed
    proj.celery("delayq", "dead-letters", "replay", "--all")
    until(lambda: not lives.alive(), 30, "the task comes anew, with no deaths")
    assert [run["deaths"] for run in proj.runs(name="poison")] == [None, 1, None]


def test_a_message_that_has_just_landed_is_not_lost(fleet: Proj) -> None:
    """A worker stops while it waits, a message comes to it, and it is killed: the message runs in another worker."""
    client = fleet.server.client()
    doomed = fleet.worker(pool="solo")

    def lands() -> bool:
        until(lambda: client.info("clients")["blocked_clients"])
        os.kill(doomed.process.pid, signal.SIGSTOP)
        fleet.send("record", "landed")
        if client.llen("celery") == 0:
            return True
        client.delete("celery")  # the worker had just ended its wait
        os.kill(doomed.process.pid, signal.SIGCONT)
        return False

    until(lands)
    [in_flight] = client.keys("*landing*")
    assert client.llen(in_flight) == 1
    doomed.kill()
    fleet.worker(pool="solo")
    [run] = fleet.await_runs(1)
    assert (run["value"], run["redelivered"]) == ("landed", False)
    until(lambda: nothing_is_left(fleet))


def test_what_a_worker_had_reserved_before_an_outage_runs_again(fleet: Proj) -> None:
    """A prefork worker discards what it had prefetched when its connection is lost; soon it gets these again."""
    worker = fleet.worker(pool="prefork", concurrency=1)
    for value in range(4):
        fleet.send("gated", "gate", value)
    fleet.await_runs(1)
    client = fleet.server.client()
    until(lambda: holds(fleet, 3) and client.info("clients")["blocked_clients"])  # it waits, and so notices the loss
    client.client_kill_filter(_type="normal", skipme=True)
    until(lambda: "Connection to broker lost" in worker.log)
    fleet.journal.set("gate", 1)
    until(lambda: {run["value"] for run in fleet.runs()} == {0, 1, 2, 3}, 60)
    until(lambda: nothing_is_left(fleet))
    assert worker.alive()
    stays(lambda: len(fleet.runs()) == 4, TTL_S)
