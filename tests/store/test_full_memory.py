"""A server whose memory is full: each operation happens whole or not at all."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis.exceptions import ResponseError

from celery_ext.journal.promotion import ALL, Promotion
from celery_ext.periodic.store import PeriodicStore, Run
from celery_ext.serve.store import Answers
from celery_ext.spark.job_types import Enqueued, JobRun
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import InFlight, PageId, Request, Requeued
from tests.support.store.consuming import CONSUMED, CONSUMERS, ME, OTHER, UNACKED, end_lease, fetch, land, lives
from tests.support.store.fixtures import MakeStore
from tests.support.store.jobs import GUARD, begun, claim, jobs, now, several
from tests.support.store.keyspace import BODIES, FUTURE_MS, PAST_MS, by_queue, contents, in_form, popped, waiting
from tests.support.store.promoting import JOURNAL_ID, elected, numbers, row, several_rows

SIZE = 10_000
LARGE = [waiting(str(number), body="x" * SIZE) for number in range(20)]
IN_FLIGHT = InFlight("q", 0, ME)
#: Redis 7 has an error of its own for it, 6.2 the text only.
FULL = "command not allowed when used memory"


@pytest.fixture
def store(make_store: MakeStore) -> Iterator[DelayStore]:
    """A store on a server that the test may fill; what comes later has memory again."""
    store = make_store(lease_ttl=3600)
    yield store
    relieve(store)


def fill(store: DelayStore) -> None:
    """Leaves the server no memory at all, as of now."""
    store.client.config_set("maxmemory-policy", "noeviction")
    store.client.config_set("maxmemory", 1)
    with pytest.raises(ResponseError, match=FULL):
        store.client.set("one more", "x")


def relieve(store: DelayStore) -> None:
    store.client.config_set("maxmemory", 0)


def test_a_server_that_fills_up_keeps_whole_messages_only(make_store: MakeStore, own_server: object) -> None:
    """Of many publishes, until and after the memory is full, each is stored whole or raises, and the others stay."""
    store = make_store(own_server)  # nobody else's memory comes or goes
    store.client.config_set("maxmemory", store.client.info("memory")["used_memory"] + 40 * SIZE)
    stored, refusals = [], []
    for number in range(100):
        try:
            store.delivery.offer("q", waiting(f"{number:02}", PAST_MS + number, f"{number:02}" + "x" * SIZE))
            stored.append(number)
        except ResponseError as error:
            refusals.append(str(error))
            assert store.queues.size("q") == len(contents(store.client)[in_form(store, BODIES).encode()]) == len(stored)
    assert stored
    assert refusals
    assert all(FULL in refusal for refusal in refusals)
    relieve(store)
    while store.delivery.transfer("q").more:
        pass
    assert [int(body[:2]) for body in popped(store.client, "q")] == stored


def held(store: DelayStore) -> list[Requeued]:
    """Lets a consumer hold two of three messages, and another one wait in its in-flight list."""
    lives(store)
    store.client.lpush("q", "1", "2", "3", "4")
    messages = [Requeued(taken.tag, "q", 0, taken.body) for taken in fetch(store, 2)]
    assert land(store, IN_FLIGHT)
    return messages


def fetched(store: DelayStore, most: int) -> bool:
    """Takes up to two messages: they are noted, and what stays in the in-flight list goes back to its queue."""
    taken = store.fetching.fetch(Request(ME, 3, most, ["q"], in_flight=[IN_FLIGHT]))
    left = (store.client.hlen(UNACKED), store.client.llen("q"), store.client.exists(store.keys.in_flight(*IN_FLIGHT)))
    return len(taken) == most and left == (2 + most, 2 - most, 0)


def requeued(store: DelayStore, messages: list[Requeued], place: Any) -> bool:
    """Puts back what is held."""
    return store.fetching.requeue(messages, place) == [] and store.client.llen("q") == 3


def waits(store: DelayStore) -> None:
    """Lets messages of all priorities wait, all due."""
    store.delivery.offer("q", *(waiting(f"due {number}", PAST_MS + number, priority=number) for number in range(10)))


def written(store: DelayStore) -> JobRun:
    """Begins a job that has sent some messages."""
    job = begun(store)
    jobs(store).enqueue("q", job, several(3))
    return job


#: What goes on where Redis refuses every other write: what is prepared, and what then works.
GOES_ON: dict[str, tuple[Callable[[DelayStore], Any], Callable[[DelayStore, Any], bool]]] = {
    "ack": (held, lambda store, held: store.fetching.ack([one.tag for one in held], "q") == []),
    "requeue next": (held, lambda store, held: requeued(store, held, "next")),
    "requeue last": (held, lambda store, held: requeued(store, held, "last")),
    "adopt": (held, lambda store, held: store.delivery.adopt("q", waiting("i"), held[0].tag) == "first"),
    "fetch none": (held, lambda store, _: fetched(store, 0)),
    "fetch one": (held, lambda store, _: fetched(store, 1)),
    "fetch two": (held, lambda store, _: fetched(store, 2)),
    "give_back": (lives, lambda store, _: store.delivery.give_back("q", 0, "taken") == 1),
    "heartbeat": (lives, lambda store, _: store.consumers.heartbeat(ME, ["q"])),
    "heartbeat of a new one": (lives, lambda store, _: store.consumers.heartbeat(OTHER, ["q"], is_new=True)),
    "leave": (
        lives,
        lambda store, _: not (store.consumers.leave([ME], "q") or store.client.exists(CONSUMERS, CONSUMED)),
    ),
    "fence": (
        lambda store: (lives(store), end_lease(store)),
        lambda store, _: store.consumers.fence([ME], "q") == [ME],
    ),
    "lead": (lambda store: None, lambda store, _: store.leases.lead("one").rank == 1),
    "lead again": (
        lambda store: (store.leases.lead("one"), store.client.pexpire(store.keys.lease, 1000)),
        lambda store, _: store.leases.lead("one").rank == 1 and store.client.pttl(store.keys.lease) > 1000,
    ),
    "claim_rows": (elected, lambda store, _: store.part(Promotion).claim_rows(numbers(1)) == {1: "claimed"}),
    "journal_heartbeat": (
        elected,
        lambda store, token: (
            store.part(Promotion).journal_heartbeat(JOURNAL_ID, token, 6, [ALL], {})[ALL].word == "sound"
            and store.part(Promotion).marker()[:4] == (JOURNAL_ID, token, 1, 6)
        ),
    ),
    "end_claim": (
        lambda store: store.part(Answers).claim("k", "digest"),
        lambda store, claim: (
            store.part(Answers).end_claim("k", claim, "keep", b"answer")
            and store.part(Answers).claim("k", "digest").answer == b"answer"
        ),
    ),
    "stats": (waits, lambda store, _: store.queues.stats("q").overdue == 10),
    "heads": (waits, lambda store, _: by_queue(store.delivery.heads(["q"])) == {"q": PAST_MS}),
    "purge of armed runs": (
        lambda store: store.part(PeriodicStore).arm(
            "q", 1, [Run("report", "d", int(FUTURE_MS), waiting("i", FUTURE_MS))]
        ),
        lambda store, _: (
            (store.queues.purge("q"), store.part(PeriodicStore).notes(["q"])["q"]["report"].runs) == (1, ())
        ),
    ),
    "purge": (waits, lambda store, _: store.queues.purge("q") == 10),
    "discard of a step": (
        lambda store: (waits(store), store.lookup.get(["q"], ["due 0"])["due 0"][0])[1],
        lambda store, one: store.lookup.discard("q", [(one, "due 0")]) == ["cancelled"],
    ),
    "close": (begun, lambda store, job: jobs(store).close(job) == "closed"),
}


@pytest.mark.parametrize(("before", "works"), GOES_ON.values(), ids=list(GOES_ON))
def test_consumers_leases_and_cancels_go_on(
    store: DelayStore, before: Callable[[DelayStore], Any], works: Callable[[DelayStore, Any], bool]
) -> None:
    """What is in hand is acknowledged, put back and taken, who lives goes on living, and what ends a thing ends it."""
    found = before(store)
    fill(store)
    assert works(store, found)


#: What needs memory: what is prepared, and what is refused then. Relieved, it has done what it should.
REFUSED: dict[str, tuple[Callable[[DelayStore], Any], Callable[[DelayStore, Any], object]]] = {
    "first offer": (lambda store: None, lambda store, _: store.delivery.offer("q", *LARGE).offered == 20),
    "offer": (waits, lambda store, _: store.delivery.offer("q", *LARGE).offered == 20),
    "put": (waits, lambda store, _: store.delivery.put("q", PageId("s", 1), [*LARGE, now("now")])),
    "transfer": (waits, lambda store, _: store.delivery.transfer("q").moved == 10 and not store.queues.size("q")),
    "promote": (
        lambda store: (token := elected(store), store.part(Promotion).promote(JOURNAL_ID, token, [row(1)]))[0],
        lambda store, token: (
            [*store.part(Promotion).promote(JOURNAL_ID, token, several_rows(3)).words.values()]
            == ["pushed", "promoted", "promoted"]
        ),
    ),
    "new_run": (written, lambda store, _: jobs(store).new_run()),
    "begin of another job": (written, lambda store, job: jobs(store).begin(job._replace(name="other"))),
    "begin of a later run": (written, lambda store, job: jobs(store).begin(job._replace(run=job.run + 1))),
    "enqueue now": (written, lambda store, job: jobs(store).enqueue("q", job, several(3, "j")).fresh == 3),
    "enqueue later": (
        written,
        lambda store, job: jobs(store).enqueue("q", job, [waiting("j"), waiting("k", priority=3)]).fresh == 2,
    ),
    "enqueue a claim": (written, lambda store, job: jobs(store).enqueue("q", job, [claim("j")]).fresh == 1),
}


@pytest.mark.parametrize(("before", "act"), REFUSED.values(), ids=list(REFUSED))
def test_what_needs_memory_is_refused_whole(
    store: DelayStore, before: Callable[[DelayStore], Any], act: Callable[[DelayStore, Any], object]
) -> None:
    """On a full server what stores something raises Redis's error and changes nothing; relieved, it works once."""
    prepared = before(store)
    kept = contents(store.client)
    fill(store)
    for _ in range(2):
        with pytest.raises(ResponseError, match=FULL):
            act(store, prepared)
    assert contents(store.client) == kept
    relieve(store)
    assert act(store, prepared)
    assert contents(store.client) != kept


@pytest.mark.parametrize("word", ["committed", "aborted"])
def test_a_job_ends_on_a_full_server(store: DelayStore, word: str) -> None:
    """A job can be committed and aborted while the memory is full, which may free what is missing."""
    job = begun(store)
    jobs(store).enqueue("q", job, several(3))
    fill(store)
    assert jobs(store).finish(job, word) == word
    assert store.client.exists(GUARD) == (word == "aborted")
    relieve(store)
    assert jobs(store).enqueue("q", job, several(3)) == Enqueued(word)
