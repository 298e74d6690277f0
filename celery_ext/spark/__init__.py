"""Spark jobs enqueue Celery tasks in bulk, and read those that wait. Needs the extra ``kombu-delayq[spark]``.

Without the extra, ``task_id``, ``job`` and the modules ``options`` and ``errors`` can be imported all the same.
"""

from typing import TYPE_CHECKING

from celery_ext.spark.task_ids import task_id
from kombu_delayq.later import later

if TYPE_CHECKING:
    from celery_ext.spark.jobs import job
    from celery_ext.spark.promotion import Promoted, cancel, promote
    from celery_ext.spark.source import CeleryDataSource, register, send
else:
    #: The modules of names that are imported when they are used. Most need Spark.
    _find = later(
        __name__,
        {
            "CeleryDataSource": "source",
            "register": "source",
            "cancel": "promotion",
            "job": "jobs",
            "promote": "promotion",
            "Promoted": "promotion",
            "send": "source",
        },
    )

    def __getattr__(name: str) -> object:
        """Imports a module, and maybe Spark, only when a name of it is used."""
        try:
            return _find(name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in ("pyspark", "pyarrow"):
                raise
            raise ModuleNotFoundError(
                f"{__name__}.{name} needs {missing}, which is not installed. Install it: "
                "pip install 'kombu-delayq[spark]'",
                name=missing,
            ) from error


__all__ = ["CeleryDataSource", "Promoted", "cancel", "job", "promote", "register", "send", "task_id"]
