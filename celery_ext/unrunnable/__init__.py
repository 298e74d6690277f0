"""Messages that a worker cannot run: they go back for other workers, and become dead letters after a time."""

from typing import TYPE_CHECKING

from kombu_delayq.later import later

if TYPE_CHECKING:
    from celery_ext.unrunnable.giving_back import PatientConsumer

__all__ = ["PatientConsumer"]

__getattr__ = later(__name__, {"PatientConsumer": "giving_back"})
