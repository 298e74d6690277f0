"""Messages made from rows without Spark, and the messages that Celery itself sends."""

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from time import time
from typing import Any

import pyarrow as pa
from kombu import compression, serialization
from pyspark.sql.pandas.types import from_arrow_schema

from celery_ext.delays.levels import DEFAULT, DelayLevels
from celery_ext.spark.app_settings import AppSettings
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.batch import BatchMessages, MessageBuilder
from celery_ext.spark.write.columns import Columns
from celery_ext.spark.write.schedule import Schedule
from celery_ext.spark.write.templates import Templates
from kombu_delayq.store.types import Offer

#: A name that no app of other tests uses: shared tasks come into every app.
TASK = "logic.record"


def batch_of(**columns: Any) -> pa.RecordBatch:
    """Makes a batch; each column is an Arrow array, or a list whose type Arrow finds."""
    return pa.RecordBatch.from_pydict(
        {name: column if isinstance(column, pa.Array) else pa.array(column) for name, column in columns.items()}
    )


@cache
def plain_templates() -> Templates:
    """Returns the templates of jobs without an app."""
    return Templates(AppSettings())


def plan_of(schema: pa.Schema, options: WriteOptions) -> Columns:
    """Returns what the columns of a DataFrame mean whose batches have this schema."""
    return Columns.of(from_arrow_schema(schema), options)


def builder_of(
    schema: pa.Schema,
    settings: AppSettings | None = None,
    *,
    job: str = "j",
    base_ms: float | None = None,
    max_delay: float | None = None,
    **options: str | None,
) -> MessageBuilder:
    """Makes the message builder of a job, as the job's writer does.

    Args:
        schema: Schema of the rows.
        settings: Settings of the app.
        job: Name of the job.
        base_ms: When the job began, ms since the epoch; None for now.
        max_delay: Transport option of this name, in s.
        **options: As a user writes them; ``task`` need not be given.
    """
    templates = plain_templates() if settings is None else Templates(settings)
    settings = settings or AppSettings()
    given = WriteOptions.parse({name: text for name, text in {"task": TASK, **options}.items() if text is not None})
    levels = DelayLevels.parse(given.delayq_levels or settings.levels or DEFAULT)
    schedule = Schedule(given, levels, time() * 1000 if base_ms is None else base_ms, max_delay)
    return MessageBuilder(plan_of(schema, given), given, templates, schedule, job)


def made_of(batch: pa.RecordBatch, settings: AppSettings | None = None, **how: Any) -> BatchMessages:
    """Makes the messages of a batch; ``how`` as in ``builder_of``."""
    return builder_of(batch.schema, settings, **how).build(batch)


def offers_of(made: BatchMessages) -> list[tuple[str, Offer]]:
    """Returns the offers with their queues, and fails the test if there are bad rows."""
    assert made.bad_rows == []
    return [(queue, offer) for queue, offers in made.offers.items() for offer in offers]


def sole(made: BatchMessages) -> tuple[str, Offer]:
    """Returns the only offer and its queue."""
    [found] = offers_of(made)
    return found


def ids_of(made: BatchMessages) -> list[str]:
    """Returns the task ids, in the order of the rows as long as all go to one queue."""
    return [str(offer.id) for _, offer in offers_of(made)]


def arguments_in(message: Mapping[str, Any]) -> Any:
    """Returns the body of a message, decoded as a worker does: args, kwargs and what comes with them."""
    raw = b64decode(message["body"])
    if "compression" in message["headers"]:
        raw = compression.decompress(raw, message["headers"]["compression"])
    kind = message["content-type"]
    return serialization.loads(raw, kind, message["content-encoding"], accept=[kind])


def kwargs_of(offer: Offer) -> dict[str, Any]:
    """Returns the keyword arguments that a worker gets."""
    found: dict[str, Any] = arguments_in(json.loads(offer.body))[1]
    return found


def seen(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all that a worker sees of a message, except for what differs whenever Celery makes one.

    The delivery tag, the property ``timestamp``, the id of the reply queue and the process id in ``origin`` differ. The
    body is decoded. Times are datetimes, because the zone in which Celery writes a time depends on how the caller gives
    it.
    """
    headers, properties = dict(message["headers"]), dict(message["properties"])
    for name in ("eta", "expires"):
        if isinstance(headers[name], str):
            headers[name] = datetime.fromisoformat(headers[name])
    headers["origin"] = headers["origin"].partition("@")[2]
    properties.pop("timestamp", None)
    for name in ("delivery_tag", "reply_to"):
        properties[name] = len(properties[name])
    args, kwargs, embed = arguments_in(message)
    rest = {name: value for name, value in message.items() if name not in ("body", "headers", "properties")}
    return {**rest, "headers": headers, "properties": properties, "body": [list(args), kwargs, embed]}


def errors_of(made: BatchMessages) -> Sequence[str]:
    """Returns what is wrong with rows, in words, and fails the test if a message was made of such a row."""
    assert not any(made.offers.values())
    assert made.bad_rows
    return [fault for fault, _ in made.bad_rows]
