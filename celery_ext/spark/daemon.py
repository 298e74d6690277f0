"""Spark's daemon, of which each Python worker is a fork, with what the data source needs imported once for all.

Without the setting ``spark.python.daemon.module=celery_ext.spark.daemon``, each worker of an executor imports it anew.
"""

import gc
from importlib import import_module

from pyspark.daemon import manager

#: What a worker needs for its first job. The last ones Celery imports with the first message of an app.
MODULES = (
    "celery_ext.spark.source",
    "celery_ext.spark.read.lists",
    "celery_ext.spark.read.reader",
    "celery_ext.spark.write.writers",
    "celery.app.events",
    "celery.events.receiver",
    "celery.loaders.app",
    "kombu.transport.memory",
)

if __name__ == "__main__":
    for module in MODULES:
        import_module(module)
    gc.freeze()  # Spark's workers collect garbage after each task, and would look at all modules again
    manager()
