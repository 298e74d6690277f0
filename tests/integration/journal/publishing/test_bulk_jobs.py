"""Bulk jobs send each row once, to where it belongs."""

from time import time

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from celery_ext.journal import JournaledStore
from celery_ext.spark.store import BulkJobs
from celery_ext.waiting import by_id
from kombu_delayq.redis import scripts
from kombu_delayq.store.types import Offer
from tests.integration.journal.publishing.test_tiers import far, near, rows
from tests.support.journal.stores import DAY_MS, MakeJournaled, in_redis
from tests.support.store.jobs import begun, claim, jobs

pytestmark = pytest.mark.parametrize("journal_url", ["sqlite"], indirect=True)


def sent(store: JournaledStore) -> tuple[list[str], list[tuple[str, bool]], int]:
    found = jobs(store).find("j")
    assert found is not None
    ids = ["near", "far", "other", "cancelled"]
    return in_redis(store), rows(store, *ids), found.sent


@pytest.mark.parametrize("way", ["at once", "ahead"])
def test_a_job_is_divided_and_sends_each_id_once(make_journaled: MakeJournaled, way: str) -> None:
    """Far rows wait in the journal, count as sent, and are not sent again, even with other bytes."""
    store = make_journaled()
    job = begun(store)
    jobs(store).enqueue("q", job, [claim("cancelled")])
    chunk = [near(), far(), far("cancelled")]
    for fresh in (2, 0):
        if way == "at once":
            reply = jobs(store).enqueue("q", job, chunk)
        else:
            with store.client.pipeline(transaction=False) as pipe:
                store.client.script_load(scripts.load("enqueue", store.layout).text)
                for command in jobs(store).enqueue_commands("q", job, chunk):
                    pipe.execute_command(*command)
                reply = jobs(store).enqueued("q", pipe.execute())
        assert (reply.word, reply.fresh, reply.repeated) == ("enqueued", fresh, 3 - fresh)
        assert sent(store) == (["near"], [("far", True)], 2)
        chunk[1] = Offer("far", repr(time() * 1000 + 50 * DAY_MS), 0, "other bytes of a second attempt")


def test_a_task_killed_between_rows_and_guard(make_journaled: MakeJournaled, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are there and the guard has none: the next attempt sends each once, though its bytes differ."""
    store = make_journaled()
    job = begun(store)

    def killed(*_: object) -> object:
        raise RedisConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(BulkJobs, "enqueue", killed)
        with pytest.raises(RedisConnectionError):
            jobs(store).enqueue("q", job, [near(), far()])
    assert sent(store) == ([], [("far", True)], 0)
    again = [near(), Offer("far", repr(time() * 1000 + 50 * DAY_MS), 0, "other bytes"), far("other")]
    assert jobs(store).enqueue("q", job, again).fresh == 3
    assert sent(store) == (["near"], [("far", True), ("other", True)], 3)


def test_a_dated_job_sends_an_id_for_each_due_time(make_journaled: MakeJournaled) -> None:
    """A row with another due time is another row of the journal, and what was cancelled comes again."""
    store = make_journaled()
    job = begun(store, dated=True)
    chunk = [far(), far()]
    for fresh in (2, 0):
        assert jobs(store).enqueue("q", job, chunk).fresh == fresh
        assert sent(store) == ([], [("far", True)] * 2, 2)
    assert next(iter(by_id.cancel(store, ["far"]))).messages
    jobs(store).take_back(["j"], ["far"])
    assert jobs(store).enqueue("q", job, chunk).fresh == 2
    assert sent(store) == ([], [("far", True)] * 2, 4)


def test_a_straggler_leaves_no_rows(make_journaled: MakeJournaled) -> None:
    """A run that a later one has taken over writes nothing into the journal."""
    store = make_journaled(journal="all")
    old = begun(store)
    begun(store)
    assert jobs(store).enqueue("q", old, [near(), far()]).word == "superseded"
    assert sent(store) == ([], [], 0)


def test_one_id_in_both_tiers_is_sent_once(make_journaled: MakeJournaled) -> None:
    """Of two messages of one id in a chunk the first is sent, as without a journal."""
    store = make_journaled()
    job = begun(store)
    jobs(store).enqueue("q", job, [near("other"), far("other")])
    assert sent(store) == (["other"], [], 1)
