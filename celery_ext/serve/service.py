"""What a handler works with: the broker and the settings of its server."""

from dataclasses import dataclass

from starlette.requests import Request

from celery_ext.serve.broker import ServeBroker
from celery_ext.serve.bulk_runs import BulkRuns
from celery_ext.serve.settings import ServeSettings
from kombu_delayq.store import OperatorStore


@dataclass(frozen=True)
class Serve:
    """A server.

    Attributes:
        broker: Its broker.
        settings: What it may do and show.
    """

    broker: ServeBroker
    settings: ServeSettings

    @property
    def runs(self) -> BulkRuns:
        """Its bulk actions."""
        return self.broker.part(BulkRuns)

    @property
    def store(self) -> OperatorStore:
        """The store of the broker; connects if nobody has yet."""
        return self.broker.store


def serve_of(request: Request) -> Serve:
    """Returns the server that a request reached."""
    found: Serve = request.app.state.serve
    return found
