"""Names of the keys of ``delayq serve``."""

from kombu_delayq.store import KeyNames


class ServeKeys(KeyNames):
    """The keys with which the processes of a server know of each other's work."""

    def answer(self, key: str) -> str:
        """HASH with a TTL: a request of the HTTP API with an idempotency key, and the first answer to it."""
        return f"{self._of.prefix}delayq:answer:{key}"

    def shared_run(self, run: str) -> str:
        """HASH with a TTL: state of a bulk action of ``delayq serve``, for the other processes of the server."""
        return f"{self._of.prefix}delayq:bulk:{run}"

    def shared_run_commands(self, run: str) -> str:
        """HASH with a TTL: the commands of other processes of the server to a bulk action, and the replies."""
        return f"{self.shared_run(run)}:commands"
