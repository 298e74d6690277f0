"""``delayq journal run``."""

import logging

import click

from celery_ext.cli.broker import CliBroker, errors_in_words
from celery_ext.cli.commands.journal.opened import NO_JOURNAL
from celery_ext.cli.daemon import Connect, log_to_stderr, metrics, metrics_options, run_until_stopped
from celery_ext.cli.options import loglevel_option
from kombu_delayq import hooks
from kombu_delayq.errors import DelayqError

logger = logging.getLogger("celery_ext.journal")


@click.command()
@loglevel_option("DEBUG logs more.")
@metrics_options
@click.pass_obj
def run(broker: CliBroker, loglevel: str, metrics_port: int | None, metrics_host: str) -> None:
    """Promote what is due soon from the journal to Redis, until it is stopped.

    Each consumer and each `delayq transfer` does this too, unless it is told not to. Run as many as you like: one
    promotes, the others stand by. SIGTERM and Ctrl-C stop it and hand over at once.

    It waits for a Redis and for a database that are away. It ends with exit code 1 if its first connection to Redis
    cannot succeed, such as with a wrong password.
    """
    log_to_stderr(loglevel)
    connection = broker.connection(hurried=True)
    if not (connection.transport_options or {}).get("journal_url"):
        raise click.ClickException(NO_JOURNAL)
    connect = Connect(connection, app=broker.app is not None)
    try:
        worker = hooks.make_journal_worker(connect)
        with metrics(broker, (), metrics_host, metrics_port), errors_in_words(connection):
            logger.info("journal worker %s for %s", worker.name, connection.as_uri())
            run_until_stopped(worker, connect)
    except (DelayqError, ValueError) as error:  # a ValueError is kombu's, of a missing or odd option
        raise click.ClickException(str(error)) from error
    logger.info("journal worker %s stopped", worker.name)
