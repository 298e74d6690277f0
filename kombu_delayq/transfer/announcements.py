"""The subscription of a leading transfer worker, or of a standby, to new heads."""

from collections.abc import Iterable

from kombu.log import get_logger

from kombu_delayq.store import TransportStore
from kombu_delayq.store.wake import Wake, WakeListener, WakeRefused

logger = get_logger(__name__)

#: Longest single wait for an announcement, in s. A transfer worker may notice a stop only after this time.
LISTEN_S = 0.2


class Announcements:
    """A subscription to new heads that is closed and opened again, with as many channels as Redis allows."""

    def __init__(self) -> None:
        self._listener: WakeListener | None = None
        self._may_listen = True
        self._may_follow = True  # queues in Redisson's layout

    @property
    def are_heard(self) -> bool:
        """Whether the subscription is open."""
        return self._listener is not None

    def open(self, store: TransportStore, *, wanted: bool = True) -> None:
        """Subscribes, unless Redis has refused it before. Ends the subscription if it is not ``wanted``."""
        if not wanted:
            self.close()
        elif self._listener is None and self._may_listen:
            self._listener = store.delivery.listen()

    def close(self) -> None:
        """Ends the subscription, if there is one."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def follow(self, queues: Iterable[str]) -> None:
        """Subscribes to these queues in Redisson's layout, and to no others in that layout."""
        if self._listener is not None and self._may_follow:
            self._listener.follow(queues)

    def wait(self, timeout_s: float) -> Wake | None:
        """Waits for one announcement, at most ``timeout_s``.

        Raises:
            WakeRefused: Redis refuses a channel; see ``narrow``.
        """
        return None if self._listener is None else self._listener.wait(timeout_s)

    def narrow(self, error: WakeRefused) -> None:
        """Closes the subscription that Redis has refused. The next one has fewer channels.

        Redis does not name the channel that it refuses. So the next subscription leaves out the channels of Redisson's
        layout; if this one had none of them, there is no next subscription.
        """
        follows = self._listener is not None and self._listener.follows
        self.close()
        if follows:
            self._may_follow = False
        else:
            self._may_listen = False
        what = "delayed messages in Redisson's layout" if follows else "delayed messages"
        logger.warning("new %s are noticed only every poll interval: %s", what, error)
