"""What a consumer looks at before each wait for messages."""

import os
from typing import TYPE_CHECKING, Any

from kombu.transport import redis as stock

from kombu_delayq.connection.demotion import NotPrimary

_Poller: Any = object if TYPE_CHECKING else stock.MultiChannelPoller


class DelayedPoller(_Poller):
    """Waits for messages of all channels; before each wait, sees to what their consumers need.

    Each may see to the queues that it consumes, and to a transfer worker: one that became a daemon after it had begun
    to consume has left that thread behind. And the connection of a consumer that is at the wrong Redis ends. Only
    here is that noticed in time: a consumer whose acks were all refused asks for no further message, and one that is at
    a primary which the Sentinels do not name is refused nothing.

    Attributes:
        refused: Whether Redis has refused something to this connection because it is not the primary.
    """

    refused = False

    def __init__(self) -> None:
        super().__init__()
        self._pid = os.getpid()

    def on_poll_start(self) -> None:
        """Called with each turn of an event loop.

        Raises:
            NotPrimary: The consumer is to connect again.
        """
        self._look()
        super().on_poll_start()

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Waits for a message where there is no event loop; before kombu 5.7 it does not pass ``on_poll_start``.

        Raises:
            NotPrimary: The consumer is to connect again.
        """
        self._look()
        return super().get(*args, **kwargs)

    def _look(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            for channel in list(self._channels):
                channel.begin_transfer()
        if self.refused or any(channel.leaves_primary() for channel in self._channels):
            self.refused = False
            for channel in list(self._channels):
                connection = getattr(channel.__dict__.get("client"), "connection", None)
                if connection is not None:
                    connection.disconnect()  # for those who go on with it
            raise NotPrimary("this Redis is not the primary, or takes no writes now")
        for channel in list(self._channels):
            channel.stay_in_use()
