"""A thread that keeps a consumer alive while the consumer's own thread is busy, such as with a task of a solo pool."""

from collections.abc import Callable, Iterable
from threading import Event, Thread
from time import monotonic

from kombu.log import get_logger
from redis.exceptions import RedisError

from kombu_delayq.consume.consumer import Consumer
from kombu_delayq.consume.takers.lanes import Lanes
from kombu_delayq.consume.takers.taker import Taker
from kombu_delayq.store import TransportStore

logger = get_logger(__name__)

#: The lease of a consumer is renewed after this share of its length.
BEAT_SHARE = 1 / 4
#: How often the thread looks whether a taker needs help, in s.
LOOK_S = 0.5


class Heartbeat:
    """Renews the lease of a consumer, and helps its takers while their thread is busy.

    Args:
        consumer: The consumer.
        store: The store of the broker, over connections of its own, which this class closes.
        takers: Returns the takers of the consumer's channels; None once nobody uses the connection any more.
    """

    def __init__(
        self,
        consumer: Consumer,
        store: TransportStore,
        takers: Callable[[], Iterable[Taker | Lanes] | None],
    ) -> None:
        self._consumer = consumer
        self._store = store
        self._takers = takers
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="delayq-heartbeat", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs in this process."""
        return self._consumer.is_own and self._thread.is_alive()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Stops the thread, which gives the lease back, and waits for it at most ``timeout_s``."""
        self._stopping.set()
        if self.is_alive:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        store = self._store
        try:
            self._beat(store)
            if self._stopping.is_set():
                self._consumer.leave(store)
        except (RedisError, OSError) as error:
            logger.info("consumer %s cannot give its lease back, which ends by itself: %s", self._consumer.name, error)
        finally:
            store.close()

    def _beat(self, store: TransportStore) -> None:
        pause_s = store.options.consumer_ttl * BEAT_SHARE
        beat_at = monotonic() + pause_s
        while not self._stopping.wait(min(LOOK_S, pause_s)):
            takers = self._takers()
            if takers is None:
                return
            try:
                for taker in takers:
                    taker.help(store)
                if monotonic() >= beat_at:
                    beat_at = monotonic() + pause_s
                    self._consumer.renew(store)
                    self._consumer.recover(store)
            except (RedisError, OSError) as error:  # the consumer itself notices a lost connection
                logger.debug("consumer %s: no heartbeat: %s", self._consumer.name, error)
                beat_at = monotonic()
            del takers
