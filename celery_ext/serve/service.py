"""What a handler works with: the broker and the settings of its server."""

from dataclasses import dataclass, field

from starlette.requests import Request

from celery_ext.serve.broker import ServeBroker
from celery_ext.serve.bulk_jobs import BulkJobs
from celery_ext.serve.settings import ServeSettings
from kombu_delayq.store import OperatorStore


@dataclass(frozen=True)
class Serve:
    """A server.

    Attributes:
        broker: Its broker.
        settings: What it may do and show.
        jobs: Its bulk actions.
    """

    broker: ServeBroker
    settings: ServeSettings
    jobs: BulkJobs = field(default_factory=BulkJobs)

    @property
    def store(self) -> OperatorStore:
        """The store of the broker; connects if nobody has yet."""
        return self.broker.store


def serve_of(request: Request) -> Serve:
    """Returns the server that a request reached."""
    found: Serve = request.app.state.serve
    return found
