"""Names of the keys of dead letters."""

from kombu_delayq.store import KeyNames


class LetterKeys(KeyNames):
    """The keys of dead letters, beside those of the queues that they are in."""

    def replaying(self, queue: str) -> str:
        """STRING with a TTL: name of the one caller that goes through a queue of dead letters."""
        return self._of.of_all(f"replaying:{queue}")
