"""What is read from workers' logs."""

import os
from datetime import datetime
from pathlib import Path

import pytest
import redis

from kombu_delayq.consume.consumer import Consumer
from kombu_delayq.store import DelayStore
from tests.chaos.ledger.events import Fault
from tests.chaos.ledger.logs import NOTICED_S, false_returns, silences


def test_a_worker_that_was_silent(client: redis.Redis, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The warning of a consumer that was taken for dead names the process and the time."""
    store, consumer = DelayStore(client), Consumer(lambda: ["orders"])
    consumer.renew(store)
    client.delete("{delayq}:consumers")  # as when its lease has ended, and it was given up
    for lease in consumer._leases.values():
        lease.renewed_at -= store.options.consumer_ttl
    consumer.renew(store)
    (message,) = caplog.messages
    other = "[2026-11-22 16:05:30,000: WARNING/MainProcess] consumer: Connection to broker lost.\n"
    log = f"[2026-11-22 16:05:29,488: WARNING/MainProcess] {message}\n{other}"
    (tmp_path / "ours-solo.log").write_text(log)
    (found,) = silences(tmp_path, 5.0)
    assert (found.kind, found.name, found.main) == ("silent", "ours-solo", os.getpid())
    noticed = datetime(2026, 11, 22, 16, 5, 29, 488000).astimezone().timestamp()
    assert (found.begin, found.end) == (noticed - 5.0, noticed)


def test_a_living_worker_that_was_taken_for_dead(
    client: redis.Redis, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A lease that is gone before its time is a false return, unless Redis has just lost data."""
    store, consumer = DelayStore(client), Consumer(lambda: ["orders"])
    consumer.renew(store)
    client.delete("{delayq}:consumers")
    consumer.renew(store)
    (message,) = caplog.messages
    (tmp_path / "ours-solo.log").write_text(f"[2026-11-22 16:05:29,488: WARNING/MainProcess] {message}\n")
    (found,) = false_returns(tmp_path, [])
    assert (found.name, found.main) == ("ours-solo", os.getpid())
    for ago_s, count in ((1.0, 0), (NOTICED_S + 1, 1)):
        loss = Fault("redis flush", "", 0, found.end - ago_s, found.end - ago_s)
        assert len(false_returns(tmp_path, [loss])) == count
