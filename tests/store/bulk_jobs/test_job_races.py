"""Many writers and drivers at one bulk job at once: each id once, and nothing after the end."""

import random
from collections import Counter
from collections.abc import Callable
from threading import Event
from time import monotonic, sleep
from typing import Any

import pytest

from kombu_delayq.store import DelayStore
from kombu_delayq.store.job_types import JobRun
from tests.support.store.jobs import GUARD, begun, now, several
from tests.support.store.keyspace import FUTURE_MS, clock_ms, waiting
from tests.support.store.together import together

IDS = [f"id{n}" for n in range(1500)]
CHUNK = 7
#: How often a task goes through its ids that is to write until it is refused.
ENDLESS = 100


def message(identity: str) -> Any:
    """Makes the same message of an id for whoever writes it: of each two, one for later."""
    return waiting(identity, FUTURE_MS) if int(identity[2:]) % 2 else now(identity)


def write(job: JobRun, first: int, last: int, times: int = 1) -> Callable[[DelayStore], Counter[str]]:
    """Writes ids in an order of its own, each chunk once or twice, as after a lost reply, until it is refused."""

    def run(store: DelayStore) -> Counter[str]:
        counts: Counter[str] = Counter()
        ids = [each for _ in range(times) for each in random.sample(IDS[first:last], last - first)]
        for at in range(0, len(ids), CHUNK):
            for _ in range(random.choice([1, 2])):
                reply = store.jobs.enqueue("q", job, [message(each) for each in ids[at : at + CHUNK]])
                if reply.word != "enqueued":
                    counts[reply.word] += 1
                    return counts
                counts["fresh"] += reply.fresh
        return counts

    return run


def sent(store: DelayStore) -> Counter[bytes]:
    """Counts the messages of the queue, delayed ones among them, by their bodies."""
    waits = [each.body or b"" for each in store.scan.browse("q", count=10_000).messages]
    assert len(waits) == store.queues.size("q")
    return Counter([*store.client.lrange("q", 0, -1), *waits])


@pytest.mark.parametrize("word", ["committed", "aborted"])
def test_nothing_is_sent_after_the_end(store: DelayStore, word: str) -> None:
    """While tasks write, their job ends: what was sent until then is all that is ever sent, each id once."""
    job = begun(store)

    def finish(store: DelayStore) -> int:
        while store.client.hlen(GUARD) < 200:
            sleep(0.001)
        assert store.jobs.finish(job, word) == word
        return sent(store).total()

    *counts, at_the_end = together(store, *[write(job, 0, 1500, ENDLESS)] * 4, finish)
    total = sum(counts, Counter[str]())
    assert total[word] == 4
    assert total["fresh"] == at_the_end == sent(store).total()
    assert set(sent(store).values()) == {1}


def test_a_later_run_while_an_earlier_one_writes(store: DelayStore) -> None:
    """A run that takes a job over while tasks of an earlier one still write sends the others: each id once."""
    earlier = begun(store)

    def take_over(store: DelayStore) -> Counter[str]:
        while store.client.hlen(GUARD) < 200:
            sleep(0.001)
        counts = write(begun(store), 0, 1500)(store)
        assert store.jobs.finish(earlier, "aborted") == "superseded"
        assert store.jobs.finish(earlier._replace(run=0), "committed") == "committed"
        return counts

    *counts, later = together(store, *[write(earlier, 0, 1000, ENDLESS)] * 3, take_over)
    assert later["fresh"] >= 500
    assert sum(each["superseded"] + each["committed"] for each in counts) == 3
    assert sent(store) == Counter(f"body of {each}".encode() for each in IDS)


def test_a_rate_holds_across_writers(store: DelayStore) -> None:
    """Writers at one job together never send more than its rate, one chunk, and what a pause may catch up with."""
    rate, chunk, catch_up_ms = 400.0, 20, 100
    job = begun(store, max_rate=rate)
    start_ms = clock_ms(store.client)
    stop = Event()

    def write_on(store: DelayStore) -> int:
        fresh, at = 0, 0
        who = str(random.random())
        while not stop.is_set():
            reply = store.jobs.enqueue("q", job, several(chunk, f"{who} {at} "))
            if reply.word == "enqueued":
                at, fresh = at + 1, fresh + reply.fresh
            else:
                assert reply.word == "wait"
                assert reply.wait_ms > 0
                sleep(min(reply.wait_ms / 1000, 0.02))
        return fresh

    def watch(store: DelayStore) -> float:
        deadline, found = monotonic() + 1.5, 0
        try:
            while monotonic() < deadline or found <= 2 * chunk:
                found = int(store.client.llen("q"))
                allowed = rate * (clock_ms(store.client) - start_ms + catch_up_ms) / 1000 + chunk
                assert found <= allowed + 1e-6
                sleep(0.01)
        finally:
            stop.set()
        return found

    one, two, _ = together(store, write_on, write_on, watch)
    assert one + two == store.client.llen("q")
    assert one + two > 2 * chunk
