"""Asks a broker what it remembers of a bulk job. Needs neither Spark nor pyarrow."""

from collections.abc import Mapping, Sequence
from typing import Any

from celery import Celery
from kombu.connection import Connection

from celery_ext.connection import TRANSPORT, open_store
from kombu_delayq import urls
from kombu_delayq.store.bulk_jobs import Job


def job(
    broker: str | Sequence[str] | Celery, job_id: str, *, transport_options: Mapping[str, Any] | None = None
) -> Job | None:
    """Returns what a broker remembers of a bulk job: its state, its counts, and when it was written.

    Args:
        broker: Broker URL, or several URLs; or an app, whose broker it is. Unlike in options of the data source, a URL
            may have a password.
        job_id: Name of the job, as of the option ``job_id``. A micro-batch of a stream is ``QUERY/BATCH``, with the id
            of the query.
        transport_options: Transport options, such as ``global_keyprefix``. They override those of the app.

    Returns:
        The job; None if the broker does not know it: it has not begun, or ``job_ttl`` is over.

    Raises:
        OtherTransport: The app uses another transport.
        RedisError, OSError: No broker answers.
    """
    with _connection(broker, dict(transport_options or {})) as connection:
        return open_store(connection).jobs.find(job_id)


def _connection(broker: str | Sequence[str] | Celery, options: dict[str, Any]) -> Connection:
    if isinstance(broker, Celery):
        given = {**(broker.conf.broker_transport_options or {}), **options}
        connection: Connection = broker.connection_for_write(transport_options=given)
        return connection
    url = ";".join(urls.split(broker))
    return Connection(urls.ours(url), transport=TRANSPORT, transport_options=options)
