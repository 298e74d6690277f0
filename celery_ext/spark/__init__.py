"""Spark jobs enqueue Celery tasks in bulk, and read those that wait. Needs the extra ``kombu-delayq[spark]``.

Without the extra, ``task_id`` and the modules ``options`` and ``errors`` can be imported all the same.
"""

from typing import TYPE_CHECKING

from celery_ext.spark.task_ids import task_id

if TYPE_CHECKING:
    from celery_ext.spark.source import CeleryDataSource, register
else:

    def __getattr__(name: str) -> object:
        """Imports Spark only when a name that needs it is used."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            from celery_ext.spark import source
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in ("pyspark", "pyarrow"):
                raise
            raise ModuleNotFoundError(
                f"{__name__}.{name} needs {missing}, which is not installed. Install it: "
                "pip install 'kombu-delayq[spark]'",
                name=missing,
            ) from error
        return getattr(source, name)


__all__ = ["CeleryDataSource", "register", "task_id"]
