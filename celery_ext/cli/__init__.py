"""The ``delayq`` command, alone or as ``celery -A app delayq``: ``delayq`` is the group, ``main`` runs it.

Celery loads the group in every process that its ``celery`` command starts.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from celery_ext.cli.root import delayq, main

__all__ = ["delayq", "main"]


def __getattr__(name: str) -> Any:
    """Imports all commands at first use: those of features need modules of this room."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from celery_ext.cli import root

    return getattr(root, name)
