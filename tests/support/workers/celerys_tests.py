"""Puts our consumer and strategy in the place of Celery's, for the tests of Celery's own worker.

In an unpacked source distribution of Celery, with this project's root on ``PYTHONPATH``::

    python -m pytest -p tests.support.workers.celerys_tests t/unit/worker
"""

from typing import Any

from celery.worker import consumer, strategy
from celery.worker.consumer import consumer as module

from celery_ext.worker.celery_patches import LeanConsumer
from celery_ext.worker.plain import plain

_of_celery = strategy.default


def _default(task: Any, app: Any, of_worker: Any, **options: Any) -> Any:
    made = _of_celery(task, app, of_worker, **options)
    return made if options else plain(task, app, of_worker, made)


strategy.default = _default
_Consumer = type("Consumer", (LeanConsumer, module.Consumer), {"__module__": module.Consumer.__module__})
consumer.Consumer = module.Consumer = _Consumer
