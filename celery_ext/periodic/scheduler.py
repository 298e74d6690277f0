"""The scheduler for ``celery beat`` processes, of which any number may run."""

from typing import Any

from celery.beat import Scheduler as StockScheduler

from celery_ext.periodic.armer import Armer
from celery_ext.periodic.source import source_of

#: How soon beat notices that it has to end, in s.
_TICK_S = 1.0


class Scheduler(StockScheduler):
    """Arms entries as workers do, and together with them: set ``beat_scheduler = "celery_ext.periodic:Scheduler"``."""

    _armer: Armer | None = None

    def setup_schedule(self) -> None:
        """Begins to arm, in a thread."""
        self._armer = Armer(self.app, source_of(self.app))
        self._armer.start()

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Sends nothing itself. Returns the time until the next call, in s."""
        return _TICK_S

    def close(self) -> None:
        """Stops arming, and gives the lease back."""
        if self._armer is not None:
            self._armer.stop()
        super().close()
