"""What attaches itself to every worker that the ``celery`` command starts."""

from typing import Any

from celery.signals import worker_init
from kombu.utils.url import maybe_sanitize_url

from kombu_delayq.urls import STOCK_SCHEMES, split


def attach() -> None:
    """Connects to Celery's signals; again changes nothing."""
    worker_init.connect(refuse_bypassed_transport, dispatch_uid="delayq-bypassed-transport")
    worker_init.connect(extend_remote_control, dispatch_uid="delayq-remote-control")


def extend_remote_control(**kwargs: Any) -> None:
    """Lets the worker's revoke and inspect reach the tasks that wait in Redis."""
    from celery_ext.remote_control import extend_commands  # brings in all of Celery's worker

    extend_commands()


def refuse_bypassed_transport(sender: Any, **kwargs: Any) -> None:
    """Ends a worker whose broker URL makes kombu overlook our transport.

    kombu takes a scheme with ``+``, such as ``redis+socket``, for the transport, and drops ``broker_transport``.

    Raises:
        SystemExit: With what to write instead; an exception would only be logged.
    """
    conf = sender.app.conf
    if not str(conf.broker_transport or "").startswith("kombu_delayq."):
        return
    for given in (conf.broker_read_url, conf.broker_write_url, conf.broker_url):
        for url in split(given or ""):
            scheme = url.partition("://")[0].lower()
            if "+" in scheme and scheme not in STOCK_SCHEMES:
                raise SystemExit(
                    f"broker_url {maybe_sanitize_url(url)} makes kombu overlook broker_transport; "
                    f"write {'delayq+socket' if scheme == 'redis+socket' else 'delayq'}://… instead"
                )
