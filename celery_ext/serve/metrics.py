"""Metrics for Prometheus, the health of the server, and a figure for autoscalers."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from math import ceil, inf
from typing import Any, Literal

import msgspec
from celery import Celery
from kombu.connection import Connection
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from redis.exceptions import ResponseError
from starlette.requests import Request
from starlette.responses import Response

from celery_ext.connection import TRANSPORT, patient_options
from celery_ext.delays import durations
from celery_ext.serve.access.identity import Action, caller_of
from celery_ext.serve.exposition import Family, answer
from celery_ext.serve.metric_families import MetricsSnapshot, SnapshotReader, all_of, up
from celery_ext.serve.problems import Problem, bad_request, unavailable
from celery_ext.serve.routes import ActionRoute, Doc
from celery_ext.serve.service import ServeBroker, serve_of
from kombu_delayq import urls
from kombu_delayq.errors import DelayqError
from kombu_delayq.redis import AWAY
from kombu_delayq.store import DelayStore
from kombu_delayq.text import readable

logger = logging.getLogger(__name__)


class DelayqCollector(Collector):
    """The metrics of a broker. Each scrape asks Redis; nothing is kept in between.

    While Redis does not answer there is only ``delayq_redis_up`` with the value 0, and no error.

    Args:
        source: A Celery app, or the URL of a broker; also the broker of a server.
        queues: Names of queues to show beside those that Redis knows and the app declares.
        dead_letters: Names of queues of dead letters beside those that Redis knows.
        transport_options: With a URL: transport options such as ``global_keyprefix``.
    """

    def __init__(
        self,
        source: Celery | str | ServeBroker,
        *,
        queues: Iterable[str] = (),
        dead_letters: Iterable[str] = (),
        transport_options: dict[str, Any] | None = None,
    ) -> None:
        if isinstance(source, Celery):
            self.broker = ServeBroker(source, partial(connection_of, source))
        elif isinstance(source, str):
            url, options = urls.ours(source), patient_options(transport_options or {}, hurried=True)
            connect = partial(Connection, url, transport=TRANSPORT, transport_options=options)
            self.broker = ServeBroker(without_queues(), connect)
        else:
            self.broker = source
        names = tuple(queues)
        self._reader = SnapshotReader(self.broker.app, names, dead_letters)
        self._away = False

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics of all queues."""
        return (family.metric() for family in self.families(lambda queue: True))

    def families(self, may_see: Callable[[str], bool]) -> Iterator[Family]:
        """Yields the metrics of those queues for which ``may_see`` is true."""
        snapshot = self._snapshot(may_see)
        yield up(snapshot is not None)
        if snapshot is not None:
            yield from all_of(snapshot)

    def describe(self) -> Iterator[Metric]:
        """Yields the names of the metrics, so that to register the collector asks Redis nothing."""
        return (family.metric() for family in (up(False), *all_of(MetricsSnapshot(False, ()))))

    def _snapshot(self, may_see: Callable[[str], bool]) -> MetricsSnapshot | None:
        try:
            snapshot = self._reader.read(self.broker.store, may_see)
        except Exception as error:
            if not isinstance(error, ResponseError):
                self.broker.lost()  # the next scrape may reach another broker of a failover list
            if not self._away:
                self._away = True
                logger.warning("metrics cannot be read from Redis: %s", readable(error), exc_info=not _is_known(error))
            return None
        if self._away:
            self._away = False
            logger.info("metrics can be read from Redis again")
        return snapshot


def without_queues() -> "Celery[Any]":
    """Returns an app that declares no queue, for a broker of which only the URL is known."""
    app = Celery("delayq", set_as_current=False)
    app.conf.task_default_queue = ""
    return app


def connection_of(app: Celery) -> Connection:
    """Returns a connection to an app's broker through our transport, which does not wait for a host for minutes."""
    options = patient_options(app.conf.broker_transport_options or {}, hurried=True)
    connection: Connection = app.connection_for_read(transport=TRANSPORT, transport_options=options)
    return connection


def _is_known(error: Exception) -> bool:
    return isinstance(error, (DelayqError, *AWAY))


def metrics(request: Request) -> Response:
    """Answers in the format that ``Accept`` prefers: OpenMetrics, or else the text format of Prometheus.

    With ``queue``, a name or a pattern that may be repeated, only of these queues.
    """
    state = request.app.state
    serve, caller = serve_of(request), caller_of(request)
    if not hasattr(state, "metrics_collector"):  # keeps what it has warned of
        state.metrics_collector = DelayqCollector(serve.broker, dead_letters=serve.settings.dead_letters)
    is_asked = _like(request.query_params.getlist("queue"))
    found = state.metrics_collector.families(lambda queue: is_asked(queue) and caller.may(Action.METRICS, queue=queue))
    body, headers = answer(found, request.headers.get("accept", ""), request.headers.get("accept-encoding", ""))
    return Response(body, headers=headers)


def _like(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Returns whether a queue has one of the names or patterns; without any, every queue has."""
    return lambda queue: not patterns or any(fnmatchcase(queue, pattern) for pattern in patterns)


def routes() -> list[ActionRoute]:
    """Returns the routes of this part."""
    about = "Count the work of queues that is ready, or due soon, for an autoscaler."
    counted = Doc(about, ScaleQuery, None, {200: Work}, "Monitoring")
    shown = Doc("Answer with the metrics for Prometheus.", MetricsQuery, None, {200: None}, "Monitoring")
    health = Doc("Say whether Redis answers.", HealthQuery, None, {200: HealthAnswer, 503: HealthAnswer}, "Monitoring")
    return [
        ActionRoute("/metrics", metrics, Action.METRICS, doc=shown),
        ActionRoute("/scale", scale, Action.METRICS, doc=counted),
        ActionRoute("/healthz", healthz, None, doc=health),
    ]


class MetricsQuery(msgspec.Struct):
    """The parameter: ``queue``, a name or a pattern such as ``orders-*``, which may be repeated; by default all."""

    queue: list[str] = []


class HealthQuery(msgspec.Struct):
    """The parameter: ``leader=required`` for an error where no worker leads."""

    leader: Literal["required", "optional"] = "optional"


class HealthAnswer(msgspec.Struct):
    """Whether all is well, whether Redis answers, and whether a transfer worker leads; null if that is not known."""

    status: Literal["ok", "failing"]
    redis: bool
    leader: bool | None


def health_of(broker: ServeBroker, *, needs_leader: bool) -> tuple[int, HealthAnswer]:
    """Asks Redis for the leader; one round trip. A cluster is up while any of its nodes answers."""
    try:
        store = broker.store.aside()
        is_up, leads = True, store.unless_away(lambda: store.leases.leader() is not None)
        if leads is None:
            store.now_ms()  # raises if no other node answers, either
    except AWAY as error:
        if not isinstance(error, ResponseError):
            broker.lost()  # the next probe may reach another broker of a failover list
        is_up, leads = False, None
    if is_up and (leads or not needs_leader):
        return 200, HealthAnswer("ok", is_up, leads)
    return 503, HealthAnswer("failing", is_up, leads)


def healthz(request: Request) -> Response:
    """Answers with 200 while Redis answers, else with 503; with ``?leader=required``, also unless a worker leads."""
    leader = request.query_params.get("leader", "optional")
    if leader not in ("required", "optional"):
        raise bad_request("leader is 'required' or 'optional'")
    status, found = health_of(serve_of(request).broker, needs_leader=leader == "required")
    return _json(found, status)


def _json(found: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(found), status, {"Cache-Control": "no-store"}, "application/json")


#: Most queues in one question.
MOST_QUEUES = 100


class ScaleQuery(msgspec.Struct):
    """The parameters: ``queue``, which may be repeated, and how far to look ahead, such as ``90s``."""

    queue: list[str]
    ahead: str = "0s"


class QueueWork(msgspec.Struct):
    """The work of a queue, as a sum: ready without limited, overdue, and due within the time asked for.

    Attributes:
        value: The sum; 0 while the queue is paused.
        ready: Number of messages that wait for a consumer.
        limited: How many of these may not go now, because of a limit by key: more workers would not run them sooner.
        overdue: Number of delayed messages whose due time is past.
        due: How many further messages are due within the time asked for.
        oldest_s: How long the oldest ready message has been waiting, in s; 0 if none is ready, or if none says it.
    """

    value: int
    ready: int
    limited: int
    overdue: int
    due: int
    oldest_s: float


class Work(QueueWork):
    """The work of all queues of the question together, and of each; ``oldest_s`` is the longest of all."""

    ahead_s: float
    queues: dict[str, QueueWork]


def scale(request: Request) -> Response:
    """Answers with the work of some queues, of all priorities. A queue that nobody knows has none.

    KEDA keeps a deployment at its minimum for a value of 0, and takes an error for a fault of the server. A queue
    becomes known with its first delayed message, so it must not be an error that it is unknown.
    """
    queues = list(dict.fromkeys(request.query_params.getlist("queue")))
    if not queues or len(queues) > MOST_QUEUES:
        raise bad_request(f"name 1 to {MOST_QUEUES} queues, such as ?queue=celery")
    try:
        ahead_s = durations.parse(request.query_params.get("ahead", "0s"))
    except ValueError as error:
        raise bad_request(f"ahead: {error}") from error
    for queue in queues:
        caller_of(request).check(Action.METRICS, queue=queue)
    return _json(work_of(serve_of(request).store, queues, ahead_s))


def work_of(store: DelayStore, queues: list[str], ahead_s: float) -> Work:
    """Returns the work of queues; five round trips. Of messages that a rate holds back, those that leave in time.

    A paused queue has none: nobody would take it. While the node of a cluster that knows it is away, none is paused.

    Raises:
        Problem: Redis refuses to count a queue.
    """
    found = {stats.queue: stats for stats in store.figures.overview(queues)}
    for stats in found.values():
        if stats.error:
            detail = f"queue {stats.queue!r} cannot be counted: {stats.error}"
            raise unavailable(detail) if stats.is_passing else Problem(502, detail, "broker-refuses")
    horizon_ms = max(stats.now_ms for stats in found.values()) + ahead_s * 1000
    counts = store.figures.due_counts(queues, [-inf, horizon_ms])
    limited, paused = store.figures.counts(queues), store.unless_away(store.aside().fetching.paused) or {}
    work = {}
    for queue in queues:
        stats = found[queue]
        soon = counts.get(queue, [stats.overdue])[0]
        overdue, due = stats.overdue, max(soon - stats.overdue, 0)  # the transfer goes on between both
        if (held := limited[queue].holding(stats)) is not None:
            overdue, due = min(overdue, max(1, ceil(held.per_s * ahead_s))), 0
        oldest_s = 0.0 if queue in paused else round(stats.oldest_ready_s or 0.0, 3)
        value = 0 if queue in paused else stats.ready - stats.limited + overdue + due
        work[stats.queue] = QueueWork(value, stats.ready, stats.limited, overdue, due, oldest_s)
    summed = ("value", "ready", "limited", "overdue", "due")
    sums: Any = {name: sum(getattr(each, name) for each in work.values()) for name in summed}
    return Work(**sums, oldest_s=max(each.oldest_s for each in work.values()), ahead_s=ahead_s, queues=work)
