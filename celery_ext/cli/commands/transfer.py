"""``delayq transfer``."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click
from celery.bin.base import COMMA_SEPARATED_LIST

from celery_ext.cli.broker import CliBroker, errors_in_words
from celery_ext.cli.daemon import Connect, log_to_stderr, metrics, metrics_options, run_until_stopped
from celery_ext.cli.options import loglevel_option
from celery_ext.connection import open_store
from kombu_delayq import hooks
from kombu_delayq.channel import DelayedChannel
from kombu_delayq.errors import DelayqError
from kombu_delayq.store import DelayStore, Transferred
from kombu_delayq.transfer import TransferWorker

logger = logging.getLogger("kombu_delayq.transfer")


@click.command()
@click.option(
    "--also",
    "queues",
    metavar="NAME,…",
    type=COMMA_SEPARATED_LIST,
    default=(),
    help="Further queues, into which only a JVM service has put messages so far.",
)
@loglevel_option("DEBUG also logs every transfer.")
@metrics_options
@click.pass_obj
def transfer(
    broker: CliBroker,
    queues: Sequence[str],
    loglevel: str,
    metrics_port: int | None,
    metrics_host: str,
) -> None:
    """Run a transfer worker until it is stopped.

    It pushes the delayed messages of every queue of the broker the moment they are due. Run as many as you
    like: one leads, the others wait. SIGTERM and Ctrl-C stop it and hand over at once. Where there is a journal, it
    also promotes what is due soon from there to Redis, as one of those that may.

    The worker waits for a Redis that is away. It ends with exit code 1 if its first connection cannot succeed, such as
    with a wrong password.
    """
    log_to_stderr(loglevel)
    connection = broker.connection(hurried=True)
    connect = Connect(connection, app=broker.app is not None)
    worker = TransferWorker(connect, queues=lambda: [*queues, *_app_queues(broker)], on_transfer=_log_transfer)

    try:
        serving = metrics(broker, queues, metrics_host, metrics_port)
        with serving, _companion(broker), errors_in_words(connection):
            logger.info("transfer worker %s for %s", worker.name, connection.as_uri())
            run_until_stopped(worker, connect)
    except (DelayqError, ValueError) as error:  # a ValueError is kombu's, of a missing or odd option
        raise click.ClickException(str(error)) from error
    logger.info("transfer worker %s stopped", worker.name)


@contextmanager
def _companion(broker: CliBroker) -> Iterator[None]:
    """Runs the worker that a store brings which also keeps messages elsewhere, over a connection of its own."""
    connection = broker.connection(hurried=True)
    found = hooks.store_class(connection.transport_options or {})
    if found is None:
        yield
        return

    def connect() -> DelayStore:
        connection.close()  # one that failed
        return open_store(connection, pool=DelayedChannel.separate_pool)

    worker = found.companion(connect)
    worker.start()
    try:
        yield
    finally:
        worker.stop()
        connection.close()


def _app_queues(broker: CliBroker) -> list[str]:
    return list(broker.app.amqp.queues) if broker.app is not None else []


def _log_transfer(queue: str, done: Transferred) -> None:
    logger.debug("queue %r: %d transferred, latest %.1f ms late", queue, done.moved, done.lateness_ms)
