"""Spark jobs enqueue Celery tasks in bulk, and read those that wait. Needs the extra ``kombu-delayq[spark]``."""

from celery_ext.spark.ids import task_id
from celery_ext.spark.source import CeleryDataSource, register

__all__ = ["CeleryDataSource", "register", "task_id"]
