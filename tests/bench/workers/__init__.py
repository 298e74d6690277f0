"""Apps with a task that does nothing but note that it began, one for each task queue that has workers to compare."""


def fill(count: int) -> None:
    """Enqueues tasks."""
