"""What is read from workers' logs."""

import os
from datetime import datetime
from pathlib import Path

import pytest
import redis

from kombu_delayq.consume.consumer import Consumer
from kombu_delayq.store import DelayStore
from tests.chaos.ledger.logs import silences


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
