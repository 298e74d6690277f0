"""Names of the keys of bulk jobs."""

from kombu_delayq.store import KeyNames


class JobKeys(KeyNames):
    """The keys of bulk jobs: of a job as a whole, and of its part for each queue, in the slot of that."""

    @property
    def runs(self) -> str:
        """STRING: count of the runs of bulk jobs."""
        return self._of.of_all("runs")

    def job(self, name: str, queue: str | None = None) -> str:
        """HASH with a TTL: state of a bulk job, or of its part for a queue, so that no task writes after its end."""
        return self._of_job("job", name, queue)

    def guard(self, name: str, queue: str | None = None) -> str:
        """HASH with a TTL: ids that a bulk job has sent to a queue so far, or cancelled, until it is committed."""
        return self._of_job("guard", name, queue)

    def parts(self, name: str) -> str:
        """SET with a TTL: names of the queues in whose slots a bulk job has a part."""
        return self._of.of_all(f"parts:{name}")

    def stream(self, name: str, queue: str | None = None) -> str:
        """STRING with a TTL: name of the bulk job that a stream works on."""
        return self._of_job("stream", name, queue)

    def shared(self) -> dict[str, str]:
        """Returns the types of the keys that queues have together, by name."""
        return {self.runs: "string"}

    def _of_job(self, what: str, name: str, queue: str | None) -> str:
        return self._of.of_all(f"{what}:{name}") if queue is None else self._of.of_queue(queue, f"{name}:{what}")
