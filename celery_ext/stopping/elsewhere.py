"""Finds running tasks that ask whether they are to stop, and asks them to."""

from collections.abc import Iterable, Mapping, Sequence

from celery_ext.stopping.store import StopStore
from celery_ext.waiting import Only, Outcome, Sighting
from kombu_delayq.store import DelayStore

_SIGHTING = Sighting(
    "", "running, and asks cancelled()", "this task runs, and asks whether it is to stop: a cancel tells it so"
)


class Elsewhere:
    """Looks for running tasks that have asked ``cancelled``; see ``waiting.elsewhere.Elsewhere``.

    Redis knows nothing but their ids. So those whose messages have to be looked at are not found.
    """

    state = "running"
    outcome: Outcome = "asked_to_stop"
    template = "stoppable.html"

    def __init__(self, more: Iterable[str] = ()) -> None:
        pass

    def find(self, store: DelayStore, ids: Sequence[str], only: Only | None = None) -> Mapping[str, Sighting]:
        """Returns those tasks that run and would hear a cancel."""
        return dict.fromkeys(() if only else store.part(StopStore).running(ids), _SIGHTING)

    def cancel(self, store: DelayStore, ids: Sequence[str], only: Only | None = None) -> Mapping[str, tuple[()]]:
        """Asks tasks to stop. Returns the ids of those that run and hear it."""
        return dict.fromkeys(() if only else store.part(StopStore).ask(ids), ())
