"""The site. Django loads the Celery app with it, so that tasks of all apps are those of this one."""

from shop.celery import app as celery_app

__all__ = ["celery_app"]
