"""Redis that dies, restarts or pauses under running workers, or says that its cluster is down."""

import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import redis
from kombu import Connection
from kombu.exceptions import OperationalError

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.types import Offer
from kombu_delayq.transfer.worker import TransferWorker
from tests.support.conditions import DEADLINE_S, until
from tests.support.store.tuned import tuned
from tests.support.workers.harness import TRANSPORT, MakeProj, Proj, Worker
from tests.support.workers.held import KEYS
from tests.support.workers.visibility import sweep, swept_after

#: A poll interval, kombu's own reconnect, and a busy machine.
LATE_S = 40.0


def _send_spread(proj: Proj, count: int, first_s: float, last_s: float) -> dict[str, float]:
    """Publishes tasks that are due one after the other. Returns when, by value."""
    now = time.time()
    dues = {str(n): now + first_s + (last_s - first_s) * n / (count - 1) for n in range(count)}
    for value, due in dues.items():
        proj.send("record", value, eta=datetime.fromtimestamp(due, UTC))
    return dues


def _await_each_once(proj: Proj, dues: dict[str, float], back: float) -> None:
    """Waits for all tasks: each once, not early, and soon after it was due and Redis was back."""
    runs = proj.await_runs(len(dues))
    assert Counter(run["value"] for run in runs) == Counter(dues.keys())
    for run in runs:
        assert dues[run["value"]] <= run["at"] < max(dues[run["value"]], back) + LATE_S
    proj.journal.delete("runs")


@pytest.mark.both_layouts
@pytest.mark.parametrize("how", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.journey)])
def test_a_restarted_redis_goes_on_from_its_file(
    make_proj: MakeProj, durable_server: PrivateRedis, how: signal.Signals
) -> None:
    """What became due while Redis was down, and what is due later, runs once after Redis is back; the worker stays."""
    proj = make_proj(durable_server)
    worker = proj.worker()
    dues = _send_spread(proj, 20, first_s=6, last_s=8)
    durable_server.stop(how)
    with pytest.raises((OperationalError, redis.ConnectionError)):
        proj.send("record", countdown=1, retry=False)
    until(lambda: time.time() > dues["9"])
    durable_server.start()
    back = time.time()
    _await_each_once(proj, dues, back)
    assert worker.alive()
    assert proj.delayed() == 0


@pytest.mark.both_layouts
def test_a_transfer_cut_short_by_the_death_of_redis_is_whole_or_not_at_all(
    durable_server: PrivateRedis, layout: str
) -> None:
    """When Redis is killed again and again amid transfers, each message ends in its queue once."""
    count = 4000
    client = redis.Redis(port=durable_server.port)
    small = tuned(transfer_batch=20, layout=layout)
    store = DelayStore(client, KEYS, options=small)
    for first in range(0, count, 500):
        store.delivery.offer("q", *(Offer(str(n), "+0", 0, str(n)) for n in range(first, first + 500)))
    transfer = TransferWorker(lambda: DelayStore(redis.Redis(port=durable_server.port), KEYS, options=small))
    transfer.start()
    cut_short = 0
    for part in (0.2, 0.4):
        until(lambda: store.queues.stats("q").ready > count * part)  # noqa: B023
        durable_server.stop(signal.SIGKILL)
        durable_server.start()
        cut_short += store.queues.size("q") > 0
    assert cut_short
    until(lambda: store.queues.size("q") == 0)
    transfer.stop(DEADLINE_S)
    assert Counter(client.lrange("q", 0, -1)) == Counter(str(n).encode() for n in range(count))
    assert not client.exists(*LAYOUT_OF[layout].keys(KEYS, "q")[:2])


def _await_loss(worker: Worker) -> None:
    # Where the main thread sends a heartbeat event first, Celery tries it until Redis is back, without a word.
    said = ("Cannot connect to", "Redis cannot be used")
    until(lambda: any(map(worker.log.count, said)) or not worker.alive(), what="the worker notices the loss")
    assert worker.alive(), worker.log


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_a_worker_that_holds_messages_outlives_redis(
    make_proj: MakeProj, durable_server: PrivateRedis, pool: str
) -> None:
    """A worker whose Redis dies while it holds unacked messages lives and reconnects; they all run in the end."""
    proj = make_proj(durable_server, broker_transport_options=swept_after(8))
    client = durable_server.client()
    worker = proj.worker(pool=pool, concurrency=1)
    for value in range(3):
        proj.send("late_acked", 2.5, value)
    proj.await_runs(1)
    until(lambda: client.hlen("unacked") == (1 if pool == "solo" else 3))
    durable_server.stop(signal.SIGKILL)
    _await_loss(worker)
    durable_server.start()

    def all_ran() -> bool:
        sweep(proj)
        return {run["value"] for run in proj.runs()} == {0, 1, 2} and not client.hlen("unacked")

    until(all_ran, what=worker.log)
    assert worker.alive()


@pytest.fixture
def slotted_server() -> Iterator[PrivateRedis]:
    """A server with hash slots that has written down all that it has answered."""
    with PrivateRedis("--appendonly", "yes", "--appendfsync", "always", slots=True) as server:
        yield server


def _set_state(server: PrivateRedis, command: str, state: str) -> None:
    """Takes all slots from the server, or gives them back, and waits until its cluster is in the state."""
    client = server.client()
    client.execute_command(command, *range(16384))
    until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == state)


def test_a_cluster_that_is_down_is_a_lost_connection(slotted_server: PrivateRedis) -> None:
    """Whoever acks, waits or publishes meanwhile gets a connection error of kombu's, and goes on after it."""
    with Connection(slotted_server.url, transport=TRANSPORT) as connection:
        queue = connection.SimpleQueue("q")
        queue.put("ready")
        message = queue.get(timeout=30)
        errors = connection.connection_errors
        _set_state(slotted_server, "CLUSTER DELSLOTS", "fail")
        with pytest.raises(errors):
            message.ack()
        with pytest.raises(errors):
            connection.drain_events(timeout=5)
        with pytest.raises(errors):
            connection.Producer().publish("refused", routing_key="q", retry=False)
        with pytest.raises(errors):
            connection.Producer().publish("refused", routing_key="q", retry=False, DelaySeconds=60)
        _set_state(slotted_server, "CLUSTER ADDSLOTS", "ok")
        connection.Producer().publish("again", routing_key="q")
        assert connection.default_channel.client.llen("q") == 1
