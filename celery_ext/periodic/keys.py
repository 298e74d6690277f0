"""Names of the keys of periodic entries."""

from kombu_delayq.store import KeyNames


class PeriodicKeys(KeyNames):
    """The keys of periodic entries: what is armed in each queue, and what all processes know of the entries."""

    def notes(self, queue: str) -> str:
        """HASH: periodic entries armed in a queue, each with its note; beside them the token of who armed last."""
        return self._of.of_queue(queue, "periodic")

    @property
    def entries(self) -> str:
        """HASH: names of the periodic entries, each with task, schedule and queues as a JSON object."""
        return self._of.of_all("periodic")

    @property
    def state(self) -> str:
        """HASH: hash of the schedule that holds, when its process began, and token and time of the one that arms."""
        return self._of.of_all("periodic:state")

    @property
    def paused(self) -> str:
        """SET: names of the periodic entries that are paused."""
        return self._of.of_all("periodic:paused")

    @property
    def outcomes(self) -> str:
        """HASH: names of the periodic entries, each with what became of its latest run."""
        return self._of.of_all("periodic:outcomes")

    @property
    def requests(self) -> str:
        """HASH: ids of the runs that somebody wants now, each with the name of its periodic entry."""
        return self._of.of_all("periodic:requests")

    @property
    def lease(self) -> str:
        """STRING with a TTL: name of the process that arms periodic entries."""
        return self._of.of_all("periodic:lease")

    def shared(self) -> dict[str, str]:
        """Returns the types of the keys that queues have together, by name."""
        hashes = dict.fromkeys([self.entries, self.state, self.outcomes, self.requests], "hash")
        return {**hashes, self.paused: "set", self.lease: "string"}
