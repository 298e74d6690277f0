"""``GET /metrics``: the metrics of those queues that the caller may see."""

from collections.abc import Iterator

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.metrics.collector import DelayqCollector
from celery_ext.serve.service import serve_of


def metrics(request: Request) -> Response:
    """Answers in the format that ``Accept`` prefers: OpenMetrics, or else the text format of Prometheus."""
    state = request.app.state
    serve, caller = serve_of(request), caller_of(request)
    if not hasattr(state, "metrics_collector"):  # keeps what it has warned of
        state.metrics_collector = DelayqCollector(serve.broker, dead_letters=serve.settings.dead_letters)
    seen = _Seen(state.metrics_collector.collect_for(lambda queue: caller.may(Action.METRICS, queue=queue)))
    encode, media_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(seen), media_type=media_type, headers={"Cache-Control": "no-store", "Vary": "Accept"})


class _Seen(Collector):
    """What a caller sees, as the encoders take it."""

    def __init__(self, found: Iterator[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        return self._found
