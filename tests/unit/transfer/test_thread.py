"""The thread of a transfer worker."""

from threading import Event

import pytest
import redis

from kombu_delayq import background
from kombu_delayq.errors import UnsupportedRedis
from kombu_delayq.store import DelayStore
from kombu_delayq.transfer.worker import TransferWorker


@pytest.mark.parametrize("error", [UnsupportedRedis("too old"), RuntimeError("a fault"), redis.ConnectionError("away")])
def test_no_error_ends_it(error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever fails, the thread tries again, because another server may take the place of the one that fails."""
    monkeypatch.setattr(background, "REFUSED_S", 0.01)
    tries, goes_on = [], Event()

    def connect() -> DelayStore:
        tries.append(1)
        if len(tries) == 3:
            goes_on.set()
        raise error

    transferring = TransferWorker(connect)
    transferring.start()
    assert goes_on.wait(20)
    transferring.stop()
    assert [str(error) in record.getMessage() for record in caplog.records].count(True) == 1


def test_what_is_away_at_the_end_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    """When somebody stops a worker while it connects, the worker logs no error."""

    def connect() -> DelayStore:
        transferring._stopping.set()
        raise redis.ConnectionError("away")

    transferring = TransferWorker(connect)
    transferring.run()
    assert caplog.records == []
    assert transferring.down_since is None
