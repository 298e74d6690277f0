"""Names of the channels by which running tasks are asked to stop."""

from kombu_delayq.store import KeyNames


class StopKeys(KeyNames):
    """The channels."""

    def stop(self, task_id: str) -> str:
        """Channel to which the process of a running task subscribes once the task has asked ``cancelled``.

        A cancel publishes there.
        """
        return f"{self._of.prefix}delayq:stop:{self._of.db}:{task_id}"
