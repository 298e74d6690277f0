"""``delayq transfer``."""

import logging
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import click
from celery.bin.base import COMMA_SEPARATED_LIST
from kombu.connection import Connection

from celery_ext.cli.target import Target, errors_in_words
from celery_ext.connecting import open_channel
from kombu_delayq.channel import connect_store
from kombu_delayq.errors import DelayqError
from kombu_delayq.results import Transferred
from kombu_delayq.store import DelayStore
from kombu_delayq.transfer import TransferWorker

logger = logging.getLogger("kombu_delayq.transfer")


@click.command()
@click.option(
    "-Q",
    "--queues",
    type=COMMA_SEPARATED_LIST,
    default=(),
    help="Names of queues, with commas between, to look after besides those that Celery has used: where none but a JVM "
    "service has put messages yet.",
)
@click.option(
    "-l",
    "--loglevel",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    default="INFO",
    show_default=True,
    help="DEBUG also tells of every transfer.",
)
@click.pass_obj
def transfer(target: Target, queues: Sequence[str], loglevel: str) -> None:
    """Run a transfer worker until it is stopped.

    It pushes the delayed messages of every queue of the broker the moment they are due. Run as many as you
    like: one leads, the others stand by. SIGTERM and Ctrl-C stop it and hand over at once.
    """
    logging.basicConfig(level=loglevel.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    connection = target.connection()
    worker = TransferWorker(_Connect(connection), queues=lambda: [*queues, *_app_queues(target)], on_transfer=_tell)

    def stop(signum: int, frame: FrameType | None) -> None:
        worker.stop()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, stop)
    try:
        with errors_in_words(connection):
            logger.info("transfer worker %s for %s", worker.name, connection.as_uri())
            worker.run()
    except (DelayqError, ValueError) as error:  # a ValueError is kombu's, of a missing or odd option
        raise click.ClickException(str(error)) from error
    logger.info("transfer worker %s stopped", worker.name)


class _Connect:
    """Makes a store on the broker that answers; after a failure, on the next one of a failover list."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __call__(self) -> DelayStore:
        self._connection.close()
        channel = open_channel(self._connection)
        return connect_store(channel, channel.separate_pool())


def _app_queues(target: Target) -> list[str]:
    return list(target.app.amqp.queues) if target.app is not None else []


def _tell(queue: str, done: Transferred) -> None:
    logger.debug("queue %r: %d transferred, latest %.1f ms late", queue, done.moved, done.latest_ms)
