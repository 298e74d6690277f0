"""What commands share that run until a signal comes: connecting, metrics, and the end."""

import logging
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, TypeVar

import click
from kombu.connection import Connection
from redis.exceptions import RedisError

from celery_ext.cli.broker import CliBroker, prefixes_in_words
from celery_ext.cli.output import escaped
from celery_ext.connection import is_permanent, open_store
from celery_ext.delays import in_words
from kombu_delayq.channel import DelayedChannel
from kombu_delayq.store import DelayStore
from kombu_delayq.transfer import TransferWorker

logger = logging.getLogger("kombu_delayq.transfer")

F = TypeVar("F", bound=Callable[..., Any])

#: First and longest pause in s between two log lines of an outage that goes on.
LOG_AFTER_S, LOG_EVERY_S = 10.0, 300.0
#: How long a signal may wait for its handler, in s.
SIGNAL_S = 0.5


def metrics_options(command: F) -> F:
    """Adds ``--metrics-port`` and ``--metrics-host``, for ``metrics``."""
    host = click.option(
        "--metrics-host",
        metavar="HOST",
        default="127.0.0.1",
        show_default=True,
        help="Address for --metrics-port, such as 0.0.0.0 for all of this machine.",
    )
    port = click.option(
        "--metrics-port",
        metavar="PORT",
        type=click.IntRange(0, 65535),
        help="Also answer GET /metrics, for Prometheus, and GET /healthz on this port; 0 takes a free one and logs it.",
    )
    return port(host(command))


def log_to_stderr(loglevel: str) -> None:
    """Writes the log to stderr, from a level such as ``info`` on."""
    logging.basicConfig(level=loglevel.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")


@contextmanager
def metrics(broker: CliBroker, queues: Sequence[str], host: str, port: int | None) -> Iterator[None]:
    """Answers requests for metrics meanwhile, over a connection apart from the transfer worker's."""
    if port is None:
        yield
        return
    with needs_extra():
        from celery_ext.serve.exporter import exporting
        from celery_ext.serve.metrics import DelayqCollector, without_queues
        from celery_ext.serve.service import ServeBroker
    source = ServeBroker(broker.app or without_queues(), lambda: broker.connection(hurried=True))
    try:
        with exporting(DelayqCollector(source, queues=queues), host, port) as url:
            logger.info("metrics at %smetrics", url)
            yield
    finally:
        source.close()


def run_until_stopped(worker: TransferWorker, connect: "Connect") -> None:
    """Runs a worker in a thread, and stops it when a signal comes.

    A signal handler interrupts the main thread wherever it is. If that were the worker's own wait, the handler's stop
    would wait for the lock that the interrupted wait holds, and neither would ever go on. A ``SimpleQueue`` may be
    interrupted by its own ``put``. The system may hand a signal to any thread, which interrupts no wait of the main
    thread: so this one ends now and then, and handlers run.
    """
    running: Future[None] = Future()
    ends: SimpleQueue[int] = SimpleQueue()

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:
            running.set_exception(error)
        else:
            running.set_result(None)
        ends.put(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda signum, frame: ends.put(signum))
    Thread(target=run, daemon=True).start()
    while True:
        with suppress(Empty):
            ends.get(timeout=SIGNAL_S)
            break
    worker.stop()
    # While the worker connects, which may take long, it has nothing to hand over; then nobody waits for it.
    if not connect.under_way or running.done():
        running.result()


class Connect:
    """Opens the store of the broker that answers; after a failure, that of the next broker of a failover list."""

    def __init__(self, connection: Connection, *, app: bool) -> None:
        self.under_way = False
        self._connection = connection
        self._app = app
        self._connected = False
        self._down_since: float | None = None
        self._log_after_s = LOG_AFTER_S

    def __call__(self) -> DelayStore:
        """Connects."""
        errors: list[Exception] = []
        self.under_way = True
        try:
            store = self._connect(errors.append)
        except (RedisError, OSError) as error:
            if not self._connected and all(map(is_permanent, [*errors, error])):
                what = f"{self._connection.as_uri()}: {str(error).rstrip('.')}"
                raise click.ClickException(
                    escaped(f"{what}. This does not end by itself: mend it, and start again")
                ) from error
            self._log_again(error)
            raise
        finally:
            self.under_way = False
        self._down_since, self._log_after_s, self._connected = None, LOG_AFTER_S, True
        return store

    def _connect(self, on_error: Callable[[Exception], None]) -> DelayStore:
        self._connection.close()
        store = open_store(self._connection, pool=DelayedChannel.separate_pool, on_error=on_error)
        if not self._connected:
            try:
                self._look_around(store)
            except BaseException:
                store.close()
                raise
        return store

    def _look_around(self, store: DelayStore) -> None:
        """Tries every right that a transfer worker needs, and warns of messages that it will not see."""
        store.check_version()
        store.leases.leader()
        store.queues.registered()
        store.delivery.heads(())
        prefixes = store.queues.other_prefixes()
        if prefixes:
            logger.warning("%s", prefixes_in_words(prefixes, app=self._app))

    def _log_again(self, error: Exception) -> None:
        """Logs now and then that an outage goes on; the worker logs when it begins and ends."""
        now = monotonic()
        self._down_since = self._down_since or now
        waited_s = now - self._down_since
        if waited_s >= self._log_after_s:
            self._log_after_s = min(waited_s * 2, waited_s + LOG_EVERY_S)
            logger.warning("still waiting for Redis, for %s by now: %s", in_words(waited_s, plain=True), error)


#: Top-level modules of the packages of the extra.
MODULES = frozenset({"a2wsgi", "httptools", "jinja2", "prometheus_client", "starlette", "uvicorn"})


@contextmanager
def needs_extra() -> Iterator[None]:
    """Says what to install if an import fails for lack of the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in MODULES:
            raise
        raise click.ClickException(
            f"{error.name} is not installed; this needs the extra: pip install 'kombu-delayq[serve]'"
        ) from error
