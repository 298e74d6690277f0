"""``enqueue.lua``: sends or stages messages of a bulk job, each id once."""

from collections import Counter

import pytest
from redis.exceptions import ResponseError

from celery_ext.spark.job_types import Enqueued, JobRun
from celery_ext.spark.keys import JobKeys
from celery_ext.waiting import by_id
from kombu_delayq.store import DelayStore
from tests.support.conditions import until
from tests.support.store.jobs import GUARD, JOB, KEPT_MS, TTL_MS, begun, claim, found_job, jobs, joined, now, several
from tests.support.store.keyspace import (
    BODIES,
    DUE,
    FUTURE_MS,
    ODD_IDS,
    ORDER,
    PAST_MS,
    Ear,
    announced,
    contents,
    in_form,
    look,
    odd,
    popped,
    spoil_the_count,
    waiting,
)


def test_a_message_for_now_is_pushed_and_its_id_guarded(store: DelayStore) -> None:
    """On a job that has begun, one message without a due time makes exactly its list, the guard and a count."""
    job = joined(store, begun(store))
    before = contents(store.client)
    assert jobs(store).enqueue("q", job, [now("i")]) == Enqueued("enqueued", 1, 0)
    after = contents(store.client)
    assert after[JOB.encode()].pop(b"enqueued") == b"1"
    assert after == before | {b"q": [b"body of i"], GUARD.encode(): {b"i": b""}, b"{delayq}:queues": {b"q"}}


def test_a_message_for_later_is_stored_until_it_is_due(store: DelayStore) -> None:
    """A message that is due later is in the store as a publisher's is, and in no list."""
    jobs(store).enqueue("q", begun(store), [waiting("i")])
    after = look(store)
    assert after[b"waiting in q"] == [("i", FUTURE_MS, 0, b"body of i")]
    assert b"q" not in after


def test_a_due_time_in_the_past_is_now(store: DelayStore) -> None:
    """A message whose due time has passed does not wait for a transfer worker."""
    jobs(store).enqueue("q", begun(store), [waiting("i", PAST_MS)])
    assert popped(store.client, "q") == [b"body of i"]
    assert store.queues.size("q") == 0


def test_each_id_is_sent_once(store: DelayStore) -> None:
    """A chunk that a task writes again changes nothing; of one that has new ids beside, only these are sent."""
    job = begun(store)
    jobs(store).enqueue("q", job, [now("i"), waiting("j")])
    before = contents(store.client)
    assert jobs(store).enqueue("q", job, [now("i"), waiting("j")]) == Enqueued("enqueued", 0, 2)
    assert contents(store.client) == before
    assert jobs(store).enqueue("q", job, [now("i"), now("k"), waiting("j")]) == Enqueued("enqueued", 1, 2)
    assert popped(store.client, "q") == [b"body of i", b"body of k"]


def test_an_id_is_sent_once_whatever_it_carries(store: DelayStore) -> None:
    """The id decides: other bytes, another due time or another queue do not make it another message of the job.

    Each queue has a guard of its own, so the id is sent once to each.
    """
    job = begun(store)
    jobs(store).enqueue("q", job, [now("i")])
    for message in (now("i", "other"), waiting("i")):
        assert jobs(store).enqueue("q", job, [message]) == Enqueued("enqueued", 0, 1)
    assert jobs(store).enqueue("other", job, [now("i")]).fresh == 1
    assert jobs(store).enqueue("q", begun(store, "other job"), [now("i")]).fresh == 1
    assert len(popped(store.client, "q")) == 2


def test_an_id_of_a_dated_job_is_sent_once_for_each_due_time(store: DelayStore) -> None:
    """Another due time makes it another message, in the same chunk and later; what was cancelled is sent again."""
    job = begun(store, dated=True)
    rows = [waiting("i", FUTURE_MS), waiting("i", FUTURE_MS + 1), waiting("i", FUTURE_MS), now("j")]
    assert jobs(store).enqueue("q", job, rows) == Enqueued("enqueued", 3, 1)
    assert jobs(store).enqueue("q", job, [*rows, waiting("i", FUTURE_MS + 2), now("k")]) == Enqueued("enqueued", 2, 4)
    assert jobs(store).sent("q", job, [rows[1], waiting("i", FUTURE_MS + 3), now("k")]) == [True, False, True]
    jobs(store).finish(job, "aborted")
    jobs(store).take_back(["j", "no such job"], ["i", "l"])
    job = begun(store, dated=True)
    assert jobs(store).enqueue("q", job, rows) == Enqueued("enqueued", 2, 2)


def test_a_chunk_may_repeat_itself(store: DelayStore) -> None:
    """Of an id that is twice in one chunk, the first message is sent."""
    messages = [now("i", "one"), now("i", "two"), now("j"), now("i", "three")]
    assert jobs(store).enqueue("q", begun(store), messages) == Enqueued("enqueued", 2, 2)
    assert popped(store.client, "q") == [b"one", b"body of j"]


def test_an_empty_body_only_claims_its_id(store: DelayStore) -> None:
    """An id that is claimed is new once, and the job sends no message of it any more."""
    job = begun(store)
    assert jobs(store).enqueue("q", job, [claim("i"), now("j")]) == Enqueued("enqueued", 2, 0)
    assert jobs(store).enqueue("q", job, [claim("i"), now("i"), waiting("j")]) == Enqueued("enqueued", 0, 3)
    assert popped(store.client, "q") == [b"body of j"]
    found = found_job(store)
    assert found.sent == 1


def test_no_messages_are_enqueued_at_once(store: DelayStore) -> None:
    """An empty chunk is no error and changes nothing."""
    job = begun(store)
    before = contents(store.client)
    assert jobs(store).enqueue("q", job, []) == Enqueued("enqueued")
    assert contents(store.client) == before


def test_only_a_new_head_is_announced(store: DelayStore, ear: Ear) -> None:
    """Transfer workers hear of the first delayed message and of each that is due before all others."""
    job = begun(store)
    jobs(store).enqueue("q", job, [waiting("later", FUTURE_MS + 5), waiting("first", FUTURE_MS)])
    jobs(store).enqueue("q", job, [waiting("behind", FUTURE_MS + 1), now("now")])
    jobs(store).enqueue("q", job, [waiting("head", FUTURE_MS - 1)])
    assert ear.heard() == [announced(store, FUTURE_MS), announced(store, FUTURE_MS - 1)]


@pytest.mark.parametrize("word", ["committed", "aborted", "superseded", "unknown", "later"])
def test_a_run_that_may_not_write_changes_nothing(store: DelayStore, ear: Ear, word: str) -> None:
    """After a commit, an abort or a later run's begin, and before its own, a run is told why and nothing is sent."""
    job = JobRun("j", 5, TTL_MS)
    if word != "unknown":
        jobs(store).begin(job)
    if word in ("committed", "aborted"):
        jobs(store).finish(job, word)
    elif word == "superseded":
        jobs(store).begin(job._replace(run=6))
    elif word == "later":
        job, word = job._replace(run=6), "unknown"
    store.client.sadd("{delayq}:queues", "q")
    store.client.sadd("{delayq}:parts:j", "q")  # the queue is noted before the job is asked
    before = contents(store.client)
    assert jobs(store).enqueue("q", job, [now("i"), waiting("j"), claim("k")]) == Enqueued(word)
    assert contents(store.client) == before
    assert ear.heard() == []


def test_a_rate_that_is_used_up_tells_how_long_to_wait(store: DelayStore) -> None:
    """After a chunk the job waits for as long as the chunk takes at its rate; until then nothing is changed."""
    job = begun(store, max_rate=0.1)
    assert jobs(store).enqueue("q", job, several(2)).fresh == 2
    before = contents(store.client)
    reply = jobs(store).enqueue("q", job, [now("j")])
    assert reply.word == "wait"
    assert 0 < reply.wait_ms <= 20_000
    assert contents(store.client) == before


def test_a_queue_that_is_too_deep_gets_nothing(store: DelayStore) -> None:
    """A chunk that would make more than ``max_depth`` in all lists and the store is refused whole, others are not."""
    job = begun(store, max_depth=4)
    jobs(store).enqueue("q", job, [now("a"), now("b", priority=9), waiting("c")])
    before = contents(store.client)
    assert jobs(store).enqueue("q", job, several(2)) == Enqueued("deep", depth=3)
    assert contents(store.client) == before
    assert jobs(store).enqueue("q", job, [now("d")]).fresh == 1
    assert jobs(store).enqueue("q", job, [now("d"), claim("e")]).fresh == 1  # they add nothing to the queue
    assert jobs(store).enqueue("other", job, several(2)).fresh == 2


def test_what_a_job_needs_expires_and_a_queue_does_not(store: DelayStore) -> None:
    """Job and guard end some time after the last chunk; the queue's own keys have no end."""
    jobs(store).enqueue("q", begun(store, "sent"), [now("i"), waiting("j", priority=3), waiting("j")])
    job = begun(store)
    for key in (JOB, GUARD):
        store.client.pexpire(key, TTL_MS // 10)
    jobs(store).enqueue("q", job, [now("k")])
    assert all(TTL_MS // 2 < store.client.pttl(key) <= KEPT_MS for key in (JOB, GUARD))
    of_sent = [of("sent", "q") for of in (JobKeys(store.keys).job, JobKeys(store.keys).guard)]
    assert all(TTL_MS // 2 < store.client.pttl(key) <= KEPT_MS for key in of_sent)
    kept = (*(in_form(store, key) for key in (DUE, BODIES, ORDER)), "q", "{delayq}:queues", "{delayq}:runs")
    assert {store.client.pttl(key) for key in kept} == {-1}


def test_any_id(store: DelayStore) -> None:
    """A message of any id, also no UTF-8, is sent once and told from another of the same id in the store."""
    for identity in ODD_IDS:
        store.client.flushall()
        job = begun(store)
        store.delivery.offer("q", odd(identity, "a publisher's"))
        for _ in range(2):
            jobs(store).enqueue("q", job, [odd(identity, "the job's")])
        jobs(store).finish(job, "committed")
        [found] = store.lookup.get(["q"], [identity]).values()
        assert Counter(message.body for message in found) == {b"a publisher's": 1, b"the job's": 1}


def test_seven_thousand_nine_hundred_and_ninety_nine_messages_fit_in_one_call(store: DelayStore) -> None:
    """The largest chunk that Lua can hand on is sent whole; one more message, and nothing of it is."""
    messages = several(8000)
    job = joined(store, begun(store))
    before = contents(store.client)
    with pytest.raises(ResponseError, match="unpack"):
        jobs(store).enqueue("q", job, messages)
    assert contents(store.client) == before
    assert jobs(store).enqueue("q", job, messages[1:]).fresh == 7999
    assert jobs(store).enqueue("q", job, messages[1:]).repeated == 7999
    assert store.client.llen("q") == 7999


def test_an_id_is_not_guarded_before_its_message_is_sent(store: DelayStore) -> None:
    """Where sending fails half way, the next attempt sends what was not sent."""
    job = begun(store)
    store.delivery.offer("q", waiting("other"))
    spoil_the_count(store)
    with pytest.raises(ResponseError):
        jobs(store).enqueue("q", job, [waiting("i", priority=3)])
    store.client.delete(in_form(store, ORDER))
    assert jobs(store).enqueue("q", job, [waiting("i", priority=3)]).fresh == 1
    assert store.queues.size("q") == 2


def test_a_row_that_waits_is_kept_out_or_takes_its_place_once(store: DelayStore) -> None:
    """Each row is decided about once in the job, however often it comes, and counted; what is new goes its own way."""
    for mode, counts, left in [("keep", (3, 1, 0), b"old"), ("replace", (4, 0, 1), b"body of i")]:
        store.client.flushall()
        store.delivery.offer("q", waiting("i", body="old"))
        job = begun(store)._replace(if_waiting=mode)
        rows = [waiting("i", FUTURE_MS + 5), waiting("j"), now("k"), waiting("l")]
        assert jobs(store).enqueue("q", job, rows) == Enqueued("enqueued", 4)
        before = contents(store.client)
        assert jobs(store).enqueue("q", job, rows) == Enqueued("enqueued", 0, 4)
        assert contents(store.client) == before
        assert ((one := found_job(store)).sent, one.kept, one.replaced) == counts
        assert {message.id: message.body for message in by_id.browse(store, "q")}["i"] == left
        assert popped(store.client, "q") == [b"body of k"]


def test_only_what_still_waits_is_rescheduled(store: DelayStore) -> None:
    """A row takes the place of the task that waits under its id; without one it sends nothing, and counts as kept."""
    store.delivery.offer("q", waiting("i", body="old"))
    job = begun(store)._replace(if_waiting="reschedule")
    rows = [waiting("i", FUTURE_MS + 5), waiting("j"), now("k")]
    assert jobs(store).enqueue("q", job, rows) == Enqueued("enqueued", 3)
    assert jobs(store).enqueue("q", job, rows) == Enqueued("enqueued", 0, 3)
    assert ((one := found_job(store)).sent, one.kept, one.replaced) == (1, 2, 1)
    assert [(one.id, one.body) for one in by_id.browse(store, "q")] == [("i", b"body of i")]
    assert popped(store.client, "q") == []


def test_what_was_stored_and_not_guarded_counts_as_sent(store: DelayStore) -> None:
    """A row that an attempt has stored, cut short in the script, is the job's own, and not kept out by itself."""
    job = begun(store)._replace(if_waiting="keep")
    assert jobs(store).enqueue("q", job, [waiting("i")]).fresh == 1
    store.client.delete(GUARD)
    store.client.hdel(JOB, "enqueued")
    assert jobs(store).enqueue("q", job, [waiting("i")]).fresh == 1
    assert ((one := found_job(store)).sent, one.kept) == (1, 0)


def test_a_row_for_now_goes_the_way_of_the_one_that_waits(store: DelayStore) -> None:
    """Where one waits, a row that is due at once replaces it, and leaves with the next transfer."""
    store.delivery.offer("q", waiting("i", body="old"))
    jobs(store).enqueue("q", begun(store)._replace(if_waiting="replace"), [now("i")])
    until(lambda: store.delivery.transfer("q").moved)
    assert popped(store.client, "q") == [b"body of i"]
    assert store.queues.size("q") == 0


def test_a_full_queue_refuses_only_what_makes_it_deeper(store: DelayStore) -> None:
    """Rows that are kept out, or take the place of others, pass ``max_depth``; one more message does not."""
    store.delivery.offer("q", waiting("i", body="old"), waiting("j", body="old"))
    job = begun(store, max_depth=1)._replace(if_waiting="replace")
    assert jobs(store).enqueue("q", job, [waiting("i")]) == Enqueued("enqueued", 1)
    assert jobs(store).enqueue("q", job, [waiting("j"), waiting("k")]) == Enqueued("deep", depth=2)
