"""What is kept of a task that may not retry any more, until its failure is stored."""

from typing import Any, NamedTuple

from celery_ext.delays.chain import DelayChain


class GivenUp(NamedTuple):
    """What is kept of a task that may not retry any more. When it fails, its worker publishes the letter.

    Attributes:
        chain: Its delay chain; None without one.
        exception: The error that ``retry`` got.
        letter: What the dead letter tells; None if there is to be none.
    """

    chain: DelayChain | None
    exception: Any
    letter: dict[str, Any] | None


class BackendAfterLetter:
    """The result backend of a task that has given up: buries the message before the failure is stored."""

    def __init__(self, backend: Any, task: Any, request: Any) -> None:
        self._backend, self._task, self._request = backend, task, request

    def mark_as_failure(self, *args: Any, **kwargs: Any) -> Any:
        """Stores a failure as the backend does."""
        self._task.end_retries(self._request)
        return self._backend.mark_as_failure(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_backend":  # of a copy that has no attributes yet
            raise AttributeError(name)
        return getattr(self._backend, name)
