"""A consumer whose pool has messages to begin asks for many at a time, and acknowledges many at a time."""

from collections.abc import Iterator
from threading import Thread
from time import monotonic
from typing import Any

import pytest

from kombu_delayq.consume import fetcher
from tests.support.looped import Looped, publish
from tests.support.workers.harness import Proj
from tests.support.workers.held import in_hand

PREFETCH = 8


@pytest.fixture
def looped(proj: Proj) -> Iterator[Looped]:
    """A consumer that has its first messages, and acknowledges none of them."""
    with proj.connection() as sender, Looped(proj.connection(), "a", prefetch=PREFETCH, acks=False) as looped:
        looped.until(looped.waits_for("a"))
        publish(sender, "a", *range(3 * PREFETCH))
        looped.until(lambda: len(looped.messages) == PREFETCH)
        yield looped


def _requests(looped: Looped, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Notes how many messages each request asks for."""
    asked: list[int] = []
    command = looped.store.fetching.fetch_command

    def noted(request: Any, **how: Any) -> Any:
        asked.append(request.most)
        return command(request, **how)

    monkeypatch.setattr(looped.store.fetching, "fetch_command", noted)
    return asked


def test_it_asks_once_as_many_are_missing_as_it_has_not_begun(looped: Looped, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request brings them, and takes the acknowledgements along."""
    monkeypatch.setattr(fetcher, "GATHER_S", 60)
    asked = _requests(looped, monkeypatch)
    looped.channel.backlog = lambda: 8 - len(acked)
    acked: list[Any] = []
    while not asked:
        message = looped.messages[len(acked)]
        acked.append(message)
        message.ack()
        looped.send()
    assert (len(acked), asked) == (PREFETCH // 2, [PREFETCH // 2])
    looped.until(lambda: len(looped.messages) == PREFETCH + PREFETCH // 2)


def test_it_asks_and_acknowledges_soon_although_it_has_enough(proj: Proj, looped: Looped) -> None:
    """What a thread acknowledges while others of the pool are busy for long is sent, and replaced, in milliseconds."""
    looped.channel.backlog = lambda: PREFETCH
    thread = Thread(target=looped.messages[0].ack)
    thread.start()
    thread.join()
    looped.send()
    wakes_at = min(timer.eta for timer in looped.hub.timer.queue)  # of those that have not fired: none is fired here
    assert wakes_at <= monotonic() + fetcher.GATHER_S, "the loop wakes by then"
    looped.until(lambda: len(looped.messages) == PREFETCH + 1)
    assert in_hand(proj.server.client()) == PREFETCH


def test_what_it_may_prefetch_more_comes_soon_although_nothing_is_acknowledged(looped: Looped) -> None:
    """While all of the pool are busy for long, a higher prefetch is filled up, and the loop comes to rest."""
    looped.channel.backlog = lambda: PREFETCH
    looped.channel.basic_qos(0, PREFETCH + 2)
    looped.until(lambda: len(looped.messages) == PREFETCH + 2)


def test_the_last_ack_of_a_pool_that_has_nothing_to_begin_wakes_the_loop(
    looped: Looped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is idle for a moment asks at once, and does not wait for the gathering to end."""
    woken: list[Any] = []
    looped.channel.fetcher._gathers_until = 0.0
    monkeypatch.setattr(looped.channel.connection.cycle, "wake", lambda: woken.append(1))
    looped.channel.backlog = int
    thread = Thread(target=looped.messages[0].ack)
    thread.start()
    thread.join()
    assert woken
