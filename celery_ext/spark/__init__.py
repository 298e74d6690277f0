"""Spark jobs enqueue Celery tasks in bulk, and read those that wait. Needs the extra ``kombu-delayq[spark]``."""

from typing import TYPE_CHECKING

from celery_ext.spark.task_ids import task_id

if TYPE_CHECKING:
    from celery_ext.spark.source import CeleryDataSource, register
else:

    def __getattr__(name: str) -> object:
        """Loads what needs Spark when it is asked for: ``task_id`` is of use in a worker that has none."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from celery_ext.spark import source

        return getattr(source, name)


__all__ = ["CeleryDataSource", "register", "task_id"]
