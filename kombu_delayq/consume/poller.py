"""Runs the checks that a consumer needs before each wait for messages."""

import os
from typing import TYPE_CHECKING, Any

from kombu.transport import redis as stock

from kombu_delayq.connection.demotion import NotPrimary

_Poller: Any = object if TYPE_CHECKING else stock.MultiChannelPoller


class DelayedPoller(_Poller):
    """Waits for messages of all channels. Before each wait it does three things for their consumers.

    It keeps their queues in use. It starts a transfer worker after a fork: a process that became a daemon while it
    consumed has lost that thread. And it ends the connection of a consumer to a Redis that is not the primary. Nothing
    else notices such a Redis in time: a consumer whose acks are all refused asks for no further message, and a primary
    that the Sentinels no longer name refuses nothing.

    Attributes:
        refused: Whether Redis has refused a command of this connection because it is not the primary.
    """

    refused = False

    def __init__(self) -> None:
        super().__init__()
        self._pid = os.getpid()

    def on_poll_start(self) -> None:
        """Runs with each turn of an event loop.

        Raises:
            NotPrimary: The consumer must connect again.
        """
        self._check()
        super().on_poll_start()

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Waits for a message without an event loop. Before kombu 5.7 this method does not call ``on_poll_start``.

        Raises:
            NotPrimary: The consumer must connect again.
        """
        self._check()
        return super().get(*args, **kwargs)

    def _check(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            for channel in list(self._channels):
                channel.begin_transfer()
        if self.refused or any(channel.leaves_primary() for channel in self._channels):
            self.refused = False
            for channel in list(self._channels):
                connection = getattr(channel.__dict__.get("client"), "connection", None)
                if connection is not None:
                    connection.disconnect()  # others may still use it
            raise NotPrimary("this Redis is not the primary, or takes no writes now")
        for channel in list(self._channels):
            channel.stay_in_use()
