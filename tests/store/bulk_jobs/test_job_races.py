"""Many writers and drivers at one bulk job at once: each id once, and nothing after the end."""

import random
from threading import Event
from time import monotonic, sleep

from kombu_delayq.store import DelayStore
from tests.support.store.jobs import begun, jobs, several
from tests.support.store.keyspace import clock_ms
from tests.support.store.together import together


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
            reply = jobs(store).enqueue("q", job, several(chunk, f"{who} {at} "))
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
