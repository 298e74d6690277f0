"""The collector: the metrics of a broker, for any registry of ``prometheus_client``."""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from celery import Celery
from kombu.connection import Connection
from kombu.exceptions import OperationalError
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError, ResponseError

from celery_ext.connection import TRANSPORT, patient_options
from celery_ext.serve.broker import ServeBroker
from celery_ext.serve.metrics import families
from celery_ext.serve.metrics.snapshot import Snapshot, SnapshotReader
from kombu_delayq import urls
from kombu_delayq.connection.text import readable
from kombu_delayq.errors import DelayqError
from kombu_delayq.store import OperatorStore

logger = logging.getLogger(__name__)


class StoreSource(Protocol):
    """Whatever has a store, such as a ``ServeBroker``."""

    @property
    def store(self) -> OperatorStore:
        """The store; connects if nobody has yet."""


class OwnBroker:
    """A broker that nobody but a collector uses. It connects at the first scrape, and again after a failure.

    Args:
        connect: Makes a connection through our transport.
        app: Declares queues; None for none.
    """

    def __init__(self, connect: Callable[[], Connection], app: "Celery[Any] | None" = None) -> None:
        self.app = app
        self._broker = ServeBroker(app or Celery("delayq", set_as_current=False), connect)

    @property
    def store(self) -> OperatorStore:
        """The store; connects if nobody has yet."""
        return self._broker.store

    def close(self) -> None:
        """Closes the connections. The next scrape connects to the first broker that answers."""
        self._broker.close()


class DelayqCollector(Collector):
    """The metrics of a broker. Each scrape asks Redis; nothing is kept in between.

    While Redis does not answer there is only ``delayq_redis_up`` with the value 0, and no error.

    Args:
        source: A Celery app, the URL of a broker, a store, or whatever has a store.
        queues: Names of queues to show beside those that Redis knows and the app declares.
        dead_letters: Names of queues of dead letters beside those that Redis knows.
        transport_options: With a URL: transport options such as ``global_keyprefix``.
    """

    def __init__(
        self,
        source: Celery | str | OperatorStore | StoreSource,
        *,
        queues: Iterable[str] = (),
        dead_letters: Iterable[str] = (),
        transport_options: dict[str, Any] | None = None,
    ) -> None:
        self.source = _source_of(source, transport_options or {})
        app, names = getattr(self.source, "app", None), tuple(queues)
        self._reader = SnapshotReader(lambda: [*names, *(app.amqp.queues if app else ())], dead_letters)
        self._away = False

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics of all queues."""
        return self.collect_for(lambda queue: True)

    def collect_for(self, may_see: Callable[[str], bool]) -> Iterator[Metric]:
        """Yields the metrics of those queues for which ``may_see`` is true."""
        snapshot = self._snapshot(may_see)
        yield families.up(snapshot is not None)
        if snapshot is not None:
            yield from families.all_of(snapshot)

    def describe(self) -> Iterator[Metric]:
        """Yields the names of the metrics, so that to register the collector asks Redis nothing."""
        yield families.up(False)
        yield from families.all_of(Snapshot(False, ()))

    def _snapshot(self, may_see: Callable[[str], bool]) -> Snapshot | None:
        try:
            snapshot = self._reader.read(self.source.store, may_see)
        except Exception as error:
            if isinstance(self.source, OwnBroker) and not isinstance(error, ResponseError):
                self.source.close()  # the next scrape may reach another broker of a failover list
            if not self._away:
                self._away = True
                logger.warning("metrics cannot be read from Redis: %s", readable(error), exc_info=not _is_known(error))
            return None
        if self._away:
            self._away = False
            logger.info("metrics can be read from Redis again")
        return snapshot


class _Fixed:
    def __init__(self, store: OperatorStore) -> None:
        self.store = store


def _source_of(source: Any, options: dict[str, Any]) -> StoreSource:
    if isinstance(source, str):
        url, options = urls.ours(source), patient_options(options, hurried=True)
        return OwnBroker(lambda: Connection(url, transport=TRANSPORT, transport_options=options))
    if isinstance(source, Celery):
        return OwnBroker(lambda: connection_of(source), source)
    found: StoreSource = _Fixed(source) if hasattr(source, "figures") else source
    return found


def connection_of(app: Celery) -> Connection:
    """Returns a connection to an app's broker through our transport, which does not wait for a host for minutes."""
    options = patient_options(app.conf.broker_transport_options or {}, hurried=True)
    connection: Connection = app.connection_for_read(transport=TRANSPORT, transport_options=options)
    return connection


def _is_known(error: Exception) -> bool:
    return isinstance(error, (DelayqError, OperationalError, OSError, RedisError))
