"""Names of the keys of limits by key."""

from kombu_delayq.store import KeyNames


class LimitKeys(KeyNames):
    """The keys of limits, beside ``Keys.places``, ``Keys.parked`` and ``Keys.parked_keys``.

    Scripts make these names themselves, of those of ``Keys.places`` and ``Keys.base``.
    """

    def limits(self, queue: str) -> str:
        """HASH: limits by name, as JSON; with ``=`` before a name or a key, what people have set in their place.

        In the one of all queues, also the names of the queues that have limits, each with ``@`` before it.
        """
        return f"{self._of.places(queue)}:limits"

    def turns(self, queue: str) -> str:
        """ZSET: the keys of which a message may go now, in the order of their turns."""
        return f"{self._of.base(queue)}:turns"

    def rests(self, queue: str) -> str:
        """ZSET: keys that rest, with until when, ms since the epoch."""
        return f"{self._of.base(queue)}:rests"

    def idle(self, queue: str) -> str:
        """SET: channels of consumers that would take a message."""
        return f"{self._of.base(queue)}:idle"
