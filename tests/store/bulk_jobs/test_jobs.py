"""Bulk jobs from begin to end: runs, delivery, limits, names."""

from uuid import uuid4

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.job_types import Enqueued, Job
from kombu_delayq.store.keys import Keys
from kombu_delayq.store.types import Offer
from tests.support.conditions import until
from tests.support.store.fixtures import MakeStore
from tests.support.store.jobs import GUARD, JOB, STAGED, begun, claim, now, published, several
from tests.support.store.keyspace import (
    BODIES,
    DUE,
    QUEUE_NAMES,
    clock_ms,
    contents,
    in_form,
    kept_ms,
    look,
    popped,
    waiting,
)
from tests.support.store.layouts import hash_only
from tests.support.store.priorities import SOME_STEPS, Kombu


def test_a_job_that_is_run_again_sends_what_is_missing(store: DelayStore) -> None:
    """After a run that ended without a word, another one with all ids sends each of the others once."""
    left_behind = begun(store)
    store.jobs.enqueue("q", left_behind, several(5))
    again = begun(store)
    assert store.jobs.enqueue("q", left_behind, several(7)) == Enqueued("superseded")
    assert store.jobs.enqueue("q", again, several(10)) == Enqueued("enqueued", 5, 5)
    assert store.jobs.finish(left_behind, "aborted") == "superseded"
    assert store.jobs.finish(again, "committed") == "committed"
    assert popped(store.client, "q") == [f"body of i{n}".encode() for n in range(10)]


def test_stragglers_after_an_abort_send_nothing(store: DelayStore) -> None:
    """Tasks that go on after their run was aborted can neither write nor begin, also while a later run writes."""
    job = begun(store)
    store.jobs.enqueue("q", job, several(2))
    store.jobs.finish(job, "aborted")
    assert store.jobs.enqueue("q", job, several(9)) == Enqueued("aborted")
    assert store.jobs.begin(job).word == "aborted"
    later = begun(store)
    assert store.jobs.enqueue("q", job, several(9)) == Enqueued("superseded")
    assert store.jobs.enqueue("q", later, several(3)) == Enqueued("enqueued", 1, 2)
    store.jobs.finish(later, "committed")
    assert store.jobs.enqueue("q", job, several(9)) == Enqueued("committed")
    assert store.client.llen("q") == 3


def test_a_job_that_was_committed_is_not_run_again(store: DelayStore) -> None:
    """A streaming batch that is replayed after its commit sends nothing."""
    job = begun(store)
    store.jobs.enqueue("q", job, several(3))
    store.jobs.finish(job, "committed")
    replay = job._replace(run=store.jobs.new_run())
    assert store.jobs.begin(replay).word == "committed"
    assert store.jobs.enqueue("q", replay, several(3)) == Enqueued("committed")
    assert store.jobs.finish(replay, "committed") == "committed"
    assert store.client.llen("q") == 3


def test_a_job_that_staged_is_run_again(store: DelayStore) -> None:
    """What a run staged before it ended without a word is sent once, with what the next run adds."""
    store.jobs.enqueue("q", begun(store, staged=True), several(5))
    again = begun(store, staged=True)
    assert store.jobs.enqueue("q", again, several(8)) == Enqueued("enqueued", 3, 5)
    store.jobs.finish(again, "committed")
    assert published(store, again) == 8
    assert popped(store.client, "q") == [f"body of i{n}".encode() for n in range(8)]


def test_a_store_lives_longer_than_the_data_of_its_redis(store: DelayStore) -> None:
    """When Redis has lost everything, a job is unknown until it begins, and then has all its rows written.

    Runs are counted from the start again, so the job has the name and the run of one that the store has written to.
    """
    store.client.flushdb()
    job = begun(store)
    assert store.jobs.enqueue("q", job, several(2)).fresh == 2
    store.client.flushdb()
    assert store.jobs.enqueue("q", job, several(3)) == Enqueued("unknown")
    assert begun(store) == job
    assert store.jobs.enqueue("q", job, several(3)) == Enqueued("enqueued", 3)
    assert store.jobs.finish(job, "committed") == "committed"
    assert store.client.llen("q") == 3


def test_publishing_is_taken_over_half_way(store: DelayStore, make_store: MakeStore) -> None:
    """Of a publisher that ended after some calls, another one sends the rest, each message once."""
    job = begun(store, staged=True)
    store.jobs.enqueue("q", job, several(450))
    store.jobs.finish(job, "committed")
    store.jobs.publish(job)
    other = make_store()
    assert other.jobs.finish(job._replace(run=0), "committed") == "publishing"
    assert published(other, job) == 250
    assert other.jobs.finish(job, "committed") == "committed"
    assert popped(store.client, "q") == [f"body of i{n}".encode() for n in range(450)]


def test_what_is_remembered_of_a_job(store: DelayStore) -> None:
    """At any moment the store tells how far a job is, and None of one of which it knows nothing."""
    assert store.jobs.find("j") is None
    job = begun(store, staged=True)
    store.jobs.enqueue("q", job, [now("i"), waiting("j"), claim("k")])

    def found(staged: int) -> tuple[str, Job]:
        one = store.jobs.find("j")
        assert one is not None
        assert (one.ended_ms is None) == (one.state == "running")
        base_ms = store.jobs.begin(job).base_ms
        return one.state, Job("j", one.state, job.run, base_ms, 2, staged, ended_ms=one.ended_ms)

    assert found(2) == ("running", store.jobs.find("j"))
    store.jobs.finish(job, "committed")
    assert found(2) == ("publishing", store.jobs.find("j"))
    store.jobs.publish(job)
    assert found(0) == ("committed", store.jobs.find("j"))


@pytest.mark.parametrize("staged", [False, True])
def test_delayed_messages_are_transferred_when_they_are_due(store: DelayStore, staged: bool) -> None:
    """Messages of a job that are due soon wait in the store, and a transfer worker moves them in their order."""
    job = begun(store, staged=staged)
    due_ms = clock_ms(store.client) + 2_000  # a busy machine enqueues for a while
    messages = [waiting(name, due_ms, priority=priority) for name, priority in [("z", 0), ("a", 0), ("m", 9)]]
    store.jobs.enqueue("q", job, messages)
    store.jobs.finish(job, "committed")
    published(store, job)
    assert until(lambda: store.delivery.transfer("q").moved) == 3
    assert popped(store.client, "q") == [b"body of z", b"body of a"]
    assert popped(store.client, "{q}\x06\x169") == [b"body of m"]
    assert not store.client.exists(*(in_form(store, key) for key in (DUE, BODIES)))


def test_a_message_that_waits_already_is_not_doubled(store: DelayStore) -> None:
    """A message that a publisher has stored, byte for byte, is not stored again; others of its id are."""
    store.delivery.offer("q", waiting("i"))
    assert store.jobs.enqueue("q", begun(store), [waiting("i")]).word == "enqueued"
    assert store.queues.size("q") == 1
    assert store.jobs.enqueue("q", begun(store, "other"), [waiting("i", body="other")]).word == "enqueued"
    assert store.queues.size("q") == 2


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("prefix", ["", "app:"])
@pytest.mark.parametrize("steps", SOME_STEPS)
def test_each_priority_goes_to_the_list_where_kombu_puts_it(
    make_store: MakeStore, steps: tuple[int, ...], prefix: str, staged: bool
) -> None:
    """With any priority steps, separator and prefix, a message lands in the list that kombu would have pushed it to."""
    store = make_store(keys=Keys(prefix, separator=":"), steps=steps)
    kombu = Kombu(steps, ":", prefix)
    job = begun(store, staged=staged)
    messages = [now(f"{priority}{n}", priority=priority) for n in "ab" for priority in range(10)]
    expected: dict[str, list[bytes]] = {}
    for each in messages:
        expected.setdefault(kombu._q_for_pri("q", each.priority), []).append(f"body of {each.id!s}".encode())
    assert store.jobs.enqueue("q", job, messages).fresh == 20
    store.jobs.finish(job, "committed")
    published(store, job)
    assert all(key.startswith(prefix.encode()) for key in contents(store.client))
    assert {name: popped(store.client, name) for name in expected} == expected


def test_a_priority_step_given_twice_is_counted_once(make_store: MakeStore) -> None:
    """Where ``priority_steps`` name a step twice, its list counts once for ``max_depth``."""
    store = make_store(steps=(0, 0, 3, 3))
    job = begun(store, max_depth=3)
    assert [store.jobs.enqueue("q", job, [now(name)]).word for name in "abcd"] == ["enqueued"] * 3 + ["deep"]


@pytest.mark.parametrize("name", [*QUEUE_NAMES, "delayq:{q}:due", "j:0", "\0", "\x7f"])
def test_any_name_of_job_queue_and_stream(store: DelayStore, name: str) -> None:
    """Jobs, queues and streams of any name are kept apart, and a whole job of such names sends each message once."""
    other = begun(store, f"j{name}~", staged=True)
    store.jobs.enqueue("other", other, several(1))
    job = begun(store, f"j{name}", staged=True)
    assert store.jobs.begin(job, name).word == "open"
    assert store.jobs.enqueue(name, job, [now("i"), waiting("j")]).fresh == 2
    assert store.jobs.of_stream(name) == (f"j{name}" if name else None)
    store.jobs.finish(job, "committed")
    assert published(store, job) == 2
    assert (store.queues.size(name), popped(store.client, name)) == (1, [b"body of i"])
    states = [found.state for each in (job.name, other.name) if (found := store.jobs.find(each))]
    assert states == ["committed", "running"]


@hash_only  # the names of Redisson's keys do not tell them apart
def test_queues_that_differ_in_braces_only_are_two(store: DelayStore) -> None:
    """One job sends to the queues ``a`` and ``{a}`` apart."""
    job = begun(store)
    for queue in ("a", "{a}"):
        store.jobs.enqueue(queue, job, [waiting(f"of {queue}"), now(f"now {queue}")])
    for queue in ("a", "{a}"):
        assert store.queues.size(queue) == 1
        assert popped(store.client, queue) == [f"body of now {queue}".encode()]


def test_scripts_that_redis_has_forgotten_are_sent_again(store: DelayStore) -> None:
    """After Redis has lost its scripts, at any moment of a job, the job goes on."""
    for step in range(2):
        store.client.script_flush()
        job = begun(store, f"j{step}", staged=True)
        store.client.script_flush()
        assert store.jobs.enqueue("q", job, several(3)).fresh == 3
        store.client.script_flush()
        assert store.jobs.finish(job, "committed") == "publishing"
        store.client.script_flush()
        assert store.jobs.publish(job).fresh == 3


def test_a_job_that_is_not_remembered_can_be_written_by_nobody(store: DelayStore) -> None:
    """When the time is up nothing of a job is left, what its tasks then write is refused, and the queue stays."""
    job = begun(store)._replace(ttl_ms=300)
    store.jobs.begin(job, "s")
    store.jobs.enqueue("q", job, [now("i"), waiting("j")])
    keys = [store.keys.job("j"), store.keys.stream("s"), JOB, GUARD, STAGED]
    until(lambda: not any(map(store.client.exists, keys)))
    assert store.jobs.enqueue("q", job, [now("k")]) == Enqueued("unknown")
    assert (store.jobs.find("j"), store.jobs.of_stream("s")) == (None, None)
    assert (store.client.llen("q"), store.queues.size("q")) == (1, 1)


def test_a_guard_takes_less_than_a_hundred_bytes_an_id(store: DelayStore) -> None:
    """The ids of 100,000 messages, as UUIDs, take no more than 100 bytes each while the job runs, and none after."""
    job = begun(store)
    for _ in range(100):
        store.jobs.enqueue("q", job, [claim(str(uuid4())) for _ in range(1000)])
    assert store.client.scard(GUARD) == 100_000
    assert store.client.memory_usage(GUARD, samples=0) <= 100 * 100_000
    store.jobs.finish(job, "committed")
    assert not store.client.exists(GUARD)
    assert store.client.memory_usage(JOB) < 1000


def test_due_times_count_from_one_moment_of_the_job(store: DelayStore) -> None:
    """A due time that counts from the job's begin is the same in another run, so that its id and bytes are too."""
    dues = []
    for _ in range(2):
        job = begun(store)
        due = repr(store.jobs.begin(job).base_ms + 3_600_000)
        store.jobs.enqueue("q", job, [Offer("i", due, 0, "body")])
        dues.append(due)
        store.jobs.finish(job, "aborted")
    assert dues[0] == dues[1]
    assert [each[:2] for each in look(store)[b"waiting in q"]] == [("i", kept_ms(store, float(dues[0])))]
