"""The page: what comes due when, queue by queue and task by task."""

from celery_ext.serve.routes import ActionRoute


def routes() -> list[ActionRoute]:
    """Returns the routes of this part."""
    return []
