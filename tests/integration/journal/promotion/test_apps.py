"""Apps whose tasks wait in a journal, and workers that promote them."""

import json
from time import time

import pytest

from kombu_delayq.store.types import Offer
from tests.support.conditions import until
from tests.support.journal.stores import HOUR_MS, MakeJournaled, Promoter, body_of, in_redis, journaled, restored
from tests.support.store.keyspace import clock_ms
from tests.support.workers.fixtures import make_proj
from tests.support.workers.harness import MakeProj

__all__ = ["make_proj"]

pytestmark = pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)


@pytest.fixture
def layout() -> str:
    """The journal does not regard the layout."""
    return "hash"


@pytest.mark.journey
def test_a_worker_promotes_what_it_is_to_run(make_proj: MakeProj, journal_url: str) -> None:
    """A far task waits in the journal, comes to Redis before it is due, and runs when it is due."""
    options = {"journal_url": journal_url, "journal_horizon": 2, "journal_lead": 1.5}
    proj = make_proj(broker_transport_options=options)
    proj.worker(pool="solo")
    begun = time()
    sent = proj.send("record", "far", countdown=4)
    store = journaled(proj.server.port, options)
    assert [row.id for row in store.journal.get([sent.id])] == [sent.id]
    assert proj.delayed() >= 0
    [run] = proj.await_runs(1)
    assert run["at"] >= begun + 4
    until(lambda: not store.journal.get([sent.id]))
    [row] = store.journal.get([sent.id], None)
    assert row.state == 1
    store.close()


def test_steps_of_delay_chains_come_back(make_journaled: MakeJournaled) -> None:
    """The step of a chain that waited comes back, and the next one takes its place as ever."""
    store = make_journaled(journal="all")
    Promoter(store).heartbeat()
    due_ms = clock_ms(store.client) + HOUR_MS / 4

    def step(retries: int) -> str:
        message = json.loads(body_of("task"))
        message["headers"]["retries"] = retries
        message["properties"]["chain_id"] = "the chain"
        return store.chains.step("q", "the chain", Offer("task", repr(due_ms), 0, json.dumps(message)))

    step(1)
    store.client.flushall()
    promoter = Promoter(store).heartbeat()
    assert restored(store).restored == 1
    promoter.promote()
    assert in_redis(store) == ["task"]
    assert step(1) == "waits"
    assert step(2) != "waits"
    assert in_redis(store) == ["task"]
