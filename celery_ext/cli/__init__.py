"""The ``delayq`` command, alone or as ``celery -A app delayq``: ``delayq`` is the group, ``main`` runs it.

Celery loads the group in every process that its ``celery`` command starts.
"""

from typing import TYPE_CHECKING

from kombu_delayq.later import later

if TYPE_CHECKING:
    from celery_ext.cli.root import delayq, main

__all__ = ["delayq", "main"]

#: All commands are imported at first use: those of features need modules of this room.
__getattr__ = later(__name__, dict.fromkeys(__all__, "root"))
