"""Asks a broker what it remembers of a bulk job. Needs neither Spark nor pyarrow."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from celery import Celery
from kombu.connection import Connection

from celery_ext.connection import TRANSPORT, open_store
from celery_ext.spark.job_types import Job
from celery_ext.spark.store import BulkJobs
from kombu_delayq import urls

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery


def job(
    broker: str | Sequence[str] | Celery,
    job_id: "str | StreamingQuery | StreamingQueryProgress",
    *,
    transport_options: Mapping[str, Any] | None = None,
) -> Job | None:
    """Returns what a broker remembers of a bulk job: its state, its counts, and when it was written.

    Args:
        broker: Broker URL, or several URLs; or an app, whose broker it is. Unlike in options of the data source, a URL
            may have a password.
        job_id: Name of the job, as in the option ``job_id``. A micro-batch of a stream is ``QUERY/BATCH``, with the id
            of the query. A progress of a query stands for its micro-batch, and a query for its last progress.
        transport_options: Transport options, such as ``global_keyprefix``. They override those of the app.

    Returns:
        The job; None if the broker does not know it: it has not begun, or ``job_ttl`` is over; and for a query without
            a micro-batch yet.

    Raises:
        OtherTransport: The app uses another transport.
        RedisError, OSError: No broker answers.
    """
    name = job_id if isinstance(job_id, str) else _name_of(job_id)
    if name is None:
        return None
    with _connection(broker, dict(transport_options or {})) as connection:
        return open_store(connection).part(BulkJobs).find(name)


def _name_of(of: "StreamingQuery | StreamingQueryProgress") -> str | None:
    """Returns the name of the job of a micro-batch; None before the first one."""
    progress: Any = getattr(of, "lastProgress", of)
    return None if progress is None else f"{progress.id}/{progress.batchId}"


def _connection(broker: str | Sequence[str] | Celery, options: dict[str, Any]) -> Connection:
    if isinstance(broker, Celery):
        given = {**(broker.conf.broker_transport_options or {}), **options}
        connection: Connection = broker.connection_for_write(transport_options=given)
        return connection
    url = ";".join(urls.split(broker))
    return Connection(urls.ours(url), transport=TRANSPORT, transport_options=options)
