"""``delayq serve``."""

import logging
from functools import partial
from pathlib import Path
from typing import Any

import click

from celery_ext.cli.broker import CliBroker, errors_in_words
from celery_ext.cli.daemon import log_to_stderr, needs_extra
from celery_ext.cli.options import loglevel_option
from celery_ext.cli.output import escaped
from celery_ext.connection import is_permanent
from kombu_delayq.errors import DelayqError

logger = logging.getLogger("celery_ext.serve")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Name or address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=5556, show_default=True, help="Port; 0 for any that is free."
)
@click.option(
    "--allow-write",
    is_flag=True,
    help="Let callers change something, too. Needs --tokens or --trust-header.",
)
@click.option(
    "--tokens",
    metavar="FILE",
    envvar="DELAYQ_TOKENS",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with the hashes of tokens, which `delayq tokens add` writes. It may change while the server runs.",
)
@click.option(
    "--trust-header",
    metavar="NAME",
    help="Header in which a proxy names the user, such as X-Forwarded-User. Needs --trusted-proxy.",
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    metavar="ADDRESS",
    multiple=True,
    help="Address or network of a proxy whose headers are believed, such as 10.0.0.0/8. May be repeated.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    metavar="NAME",
    multiple=True,
    help="Name by which browsers call the server, beside localhost; *.example.org for all below. May be repeated.",
)
@click.option("--root-path", metavar="PATH", default="", help="Path below which a proxy serves this, such as /delayq.")
@click.option("--hide-arguments", is_flag=True, help="Show no arguments of tasks.")
@click.option(
    "--dead-letters",
    "dead_letters",
    metavar="QUEUE",
    multiple=True,
    help="A queue of dead letters, if Redis does not know it as one. May be repeated.",
)
@loglevel_option("DEBUG logs every request, INFO those that change something or fail.")
@click.pass_obj
def serve(broker: CliBroker, /, host: str, port: int, loglevel: str, **given: Any) -> None:
    """Show what comes due when: a page, an HTTP API and metrics, on one port.

    Without options it listens on this machine alone, and shows without changing anything. It needs no token then.
    SIGTERM and Ctrl-C end it.

    The server waits for a Redis that is away. It ends with exit code 1 if its first connection cannot succeed, such as
    with a wrong password.
    """
    with needs_extra():
        from celery_ext.serve import server
        from celery_ext.serve.api.deliveries import stop_waiting
        from celery_ext.serve.application import make_app
        from celery_ext.serve.service import ServeBroker
        from celery_ext.serve.settings import ServeSettings

    log_to_stderr(loglevel)
    if loglevel.upper() != "DEBUG":
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # it warns of each request that is no HTTP
    settings = ServeSettings(**given)
    try:
        server.check_safe(settings, host)
        shared = ServeBroker(broker.publishing_app(), lambda: broker.connection(hurried=True))
        application = make_app(shared, settings)
        with errors_in_words(broker.connection(hurried=True)):
            _try_to_connect(shared)
        listening = server.listen(host, port)
    except (DelayqError, ValueError) as error:
        raise click.ClickException(escaped(str(error))) from error
    url = server.url_of(listening, settings.root_path)
    ready = partial(click.echo, f"delayq serve: {url}  (Ctrl-C ends it)")
    server.Server(application, on_ready=ready, on_end=partial(stop_waiting, application)).serve_on(listening)
    logger.info("the server on %s ended", url)


def _try_to_connect(shared: Any) -> None:
    """Connects, so that what somebody has to mend is known at the start. A Redis that is away may come back."""
    try:
        _ = shared.store
    except Exception as error:
        if is_permanent(error) or isinstance(error, (DelayqError, ValueError)):
            raise
        logger.warning("Redis does not answer yet: %s", error)
