"""Names of the keys that Redis has of its journal."""

from kombu_delayq.store import KeyNames


class JournalKeys(KeyNames):
    """The keys with which Redis and its journal agree."""

    def journal(self, queue: str = "") -> str:
        """HASH: marker of the journal of this Redis: its id, and token, epoch and heartbeat of its promoter."""
        return self._of.of_group(queue, "journal")

    def journal_guard(self, queue: str = "") -> str:
        """HASH: number of each row of the journal that is being promoted or taken out, with its state and the time."""
        return self._of.of_group(queue, "journal:guard")

    @property
    def journal_lease(self) -> str:
        """STRING with a TTL: token of the process that promotes rows of the journal."""
        return self._of.of_all("journal:lease")

    def shared(self) -> dict[str, str]:
        """Returns the types of the keys that queues have together, by name."""
        return {self.journal_lease: "string", self.journal(): "hash"}
