"""The thread of a journal worker."""

from threading import Event

import pytest

from celery_ext.journal import worker
from celery_ext.journal.store import JournaledStore
from celery_ext.journal.worker import JournalWorker
from kombu_delayq.errors import UnsupportedJournal


@pytest.mark.parametrize("error", [UnsupportedJournal("too old"), RuntimeError("a fault"), OSError("away")])
def test_no_error_ends_it(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails, the thread tries again, because somebody may bring the database up to date."""
    monkeypatch.setattr(worker, "REFUSED_S", 0.01)
    tries, goes_on = [], Event()

    def connect() -> JournaledStore:
        tries.append(1)
        if len(tries) == 3:
            goes_on.set()
        raise error

    promoting = JournalWorker(connect)
    promoting.start()
    assert goes_on.wait(20)
    promoting.stop()
