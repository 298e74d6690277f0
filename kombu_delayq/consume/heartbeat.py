"""A thread that keeps a consumer alive while the consumer's own thread is busy, such as with a task of a solo pool."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from socket import socketpair
from threading import Event, Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING

from kombu.log import get_logger
from redis.exceptions import RedisError

from kombu_delayq.consume.presence import Presence
from kombu_delayq.redis import is_wrong_type
from kombu_delayq.store import BEAT_FRACTION

if TYPE_CHECKING:
    from kombu_delayq.consume.consumer import Consumer
    from kombu_delayq.consume.fetcher import Fetcher
    from kombu_delayq.store import DelayStore

logger = get_logger(__name__)

#: How often a consumer renews its lease, and the times of what it holds, at most, in s.
BEATS_APART_S = 0.1
#: How often the thread looks whether a fetcher needs help, in s.
LOOK_S = 0.5


class Heartbeat:
    """Renews the lease of a consumer, sends what it has counted, and helps its fetchers while their thread is busy.

    No error ends the thread, and none keeps it from the rest of its work.

    Args:
        consumer: The consumer.
        store: The store of the broker, over connections of its own, which this class closes.
        fetchers: Returns the fetchers of the consumer's channels; None once the transport is gone. One that consumes
            and is never closed stays until the process ends, when kombu gives back what its channels hold.
        visibility_timeout_s: For how long a message may be in hand, in s, before stock kombu gives it back, unless its
            time is renewed.
    """

    def __init__(
        self,
        consumer: "Consumer",
        store: "DelayStore",
        fetchers: Callable[[], Iterable["Fetcher"] | None],
        visibility_timeout_s: float = inf,
    ) -> None:
        self._consumer = consumer
        consumer.subscribed = frozenset()
        self._store = store
        self._presence = Presence(store)
        self._presence.on_call = self._wake
        self._presence.on_lists = self._tell
        self._fetchers = fetchers
        self._pause_s = max(min(store.options.consumer_ttl, visibility_timeout_s) * BEAT_FRACTION, BEATS_APART_S)
        self._said = ""  # which key has the wrong type, once
        self._stopping, self._has_left = Event(), Event()
        self._waker, self._woken = socketpair()  # ends the pause
        self._thread = Thread(target=self._run, name="delayq-heartbeat", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs in this process."""
        return self._consumer.is_own and self._thread.is_alive()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Lets the thread give the lease back and end, and waits for that at most ``timeout_s``.

        While messages are in hand, such as those of tasks that outlive a lost connection, or Redis may still move some
        there, the thread keeps the subscription for the rest of the lease: the process lives, and may acknowledge them.
        """
        self._stopping.set()
        if self.is_alive:
            with suppress(OSError):  # the thread has ended meanwhile
                self._waker.send(b"\0")
            self._has_left.wait(timeout_s)

    def _run(self) -> None:
        beat_at = monotonic() + self._pause_s
        while not self._stops_within(min(LOOK_S, self._pause_s)):
            fetchers = self._fetchers()
            if fetchers is None:
                break
            for fetcher in fetchers:
                self._does(fetcher.help)
            del fetchers
            if self._subscribe() or monotonic() >= beat_at:
                beat_at = monotonic() + self._pause_s
                self._report()
                has_lease = self._consumer.keeps_lease(self._pause_s) or self._does(self._consumer.renew)
                if not (has_lease and self._does(self._consumer.lost.recover)):
                    beat_at = monotonic()
        if self._stopping.is_set():
            self._leave()
        with suppress(RedisError, OSError):
            self._presence.close()
            self._store.close()
        self._waker.close()
        self._woken.close()

    def _stops_within(self, pause_s: float) -> bool:
        """Waits for a pause, and wakes the fetchers whenever a script asks. Returns whether the thread ends."""
        over_at = monotonic() + pause_s
        while not self._stopping.is_set() and (left_s := over_at - monotonic()) > 0:
            if not self._does(partial(self._await_call, left_s)):
                self._stopping.wait(left_s)
        return self._stopping.is_set()

    def _await_call(self, pause_s: float, _: object) -> None:
        self._presence.wait(self._woken, pause_s)

    def _wake(self) -> None:
        for fetcher in self._fetchers() or ():
            fetcher.wake()

    def _leave(self) -> None:
        self._report()
        self._does(self._consumer.leave)
        if self._consumer.has_lease:
            logger.info("consumer %s cannot give its lease back now, and tries again", self._consumer.name)
        self._has_left.set()
        ends_at = monotonic() + self._store.options.consumer_ttl
        while self._consumer.has_lease and monotonic() < ends_at:
            sleep(LOOK_S)
            self._subscribe()
            self._does(self._consumer.lost.recover)
            if self._consumer.going_on:  # its tasks keep their places until they end
                self._does(self._consumer.put_back_others)
                self._does(self._consumer.renew)
                ends_at = monotonic() + self._store.options.consumer_ttl
            self._does(self._consumer.leave)

    def _report(self) -> None:
        self._does(lambda store: self._consumer.waits.flush(store.figures.count_minute))
        self._does(self._consumer.report)

    def _subscribe(self) -> bool:
        """Keeps the subscription. Returns whether Redis has to know that there is one now, or none any more."""
        self._does(lambda _: self._presence.keep(self._consumer.names))
        before, self._consumer.subscribed = self._consumer.subscribed, self._presence.names
        if has_changed := before != self._consumer.subscribed:
            self._wake()  # a script may have tried before
        return has_changed

    def _tell(self, lists: Mapping[str, bool]) -> None:
        for fetcher in self._fetchers() or ():
            fetcher.note_lists(lists)

    def _does(self, work: "Callable[[DelayStore], object]") -> bool:
        """Does a part of the work. Returns whether it succeeded; an error goes to the log."""
        try:
            work(self._store)
        except (RedisError, OSError) as error:  # the consumer itself notices a lost connection
            if is_wrong_type(error) and str(error) != self._said:
                self._said = str(error)
                logger.error("consumer %s has no heartbeat, and tries again: %s", self._consumer.name, error)
            else:
                logger.debug("consumer %s: no heartbeat: %s", self._consumer.name, error)
        except Exception:  # a fault of ours must not end the lease
            logger.exception("the heartbeat of consumer %s failed and goes on", self._consumer.name)
        else:
            return True
        return False
