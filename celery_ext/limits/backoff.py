"""A task that asks for a rest of its key, such as after the answer 429 of an API."""

from typing import Any

from celery.exceptions import Retry


class Backoff(Retry):
    """Raised in a task: its key rests, and the task is the next one of the key after that.

    Its message goes back as it is, so neither a retry nor a delivery is counted; in results the state is RETRY. A task
    without a key waits for as long alone.

    Args:
        seconds: For how long, in s.
    """

    def __init__(self, seconds: float, *args: Any) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < float("inf"):
            raise ValueError(f"Backoff({seconds!r}): a number of seconds is wanted")
        self.seconds = float(seconds)
        super().__init__(f"its key rests for {seconds:g} s", None, self.seconds)

    def __reduce__(self) -> Any:
        return type(self), (self.seconds,)
