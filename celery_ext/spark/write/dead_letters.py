"""Dead letters of rows that make no task."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
from celery.utils.nodenames import anon_nodename

from celery_ext.publish import Gaps
from celery_ext.spark import task_ids
from celery_ext.spark.errors import BadRow
from celery_ext.spark.write.arguments import Arguments
from celery_ext.spark.write.digests import column_of, tags_of
from celery_ext.spark.write.templates import TemplateKey, Templates
from celery_ext.spark.write.texts import joined
from celery_ext.spark.write.values import BatchRows
from kombu_delayq.message import DEAD_LETTER, Reason, record, stamp_text, to_json, with_properties
from kombu_delayq.store import Offer

#: Task that a dead letter names when its row names none.
NO_TASK = "celery_ext.spark.bad_row"


class DeadLetterBuilder:
    """Makes the dead letters of one job.

    Args:
        queue: Queue of the dead letters.
        templates: Templates of the job's messages.
        salt: 8 hex digits that stand for the job.
    """

    def __init__(self, queue: str, templates: Templates, salt: str) -> None:
        self._queue = queue
        self._templates = templates
        self._salt = salt

    def build(self, row: Mapping[str, Any], task: str | None, queue: str | None, digest: bytes, error: str) -> Offer:
        """Returns the dead letter of a row: a message of its task whose keyword arguments are the row.

        They are in JSON where the serializer of the task cannot write them.

        Args:
            row: Values by name of the column.
            task: Name of the task, or None.
            queue: Queue that the row names, or None.
            digest: SHA-256 that the task id is made from.
            error: Why the row makes no task.
        """
        key = TemplateKey(task or NO_TASK, self._queue)
        template = self._templates.of(key)
        rows = BatchRows(pa.RecordBatch.from_pydict({"kwargs": [to_json(row)]}))
        arguments = Arguments(rows, (), self._templates.repr_levels)
        letter_id = task_ids.uuid_of(task_ids.digest(f"bad {digest.hex()}"))
        own = f'"{letter_id}"'
        body, kwargs_repr = arguments.bodies(template), arguments.kwargs_repr()
        if rows.errors:
            template = self._templates.of(key._replace(serializer="json"))
            body = arguments.bodies(template)
        tag = ['"', tags_of(column_of([digest]), self._salt), '"']
        body, kwargs_repr, tag = (joined(pieces, 1)[0].as_py() for pieces in (body, kwargs_repr, tag))
        gaps = Gaps(*["null"] * len(Gaps._fields))._replace(
            body=body,
            task_id=own,
            root_id=own,
            argsrepr='"()"',
            kwargsrepr=kwargs_repr,
            headers="",
            delivery_tag=tag,
            timestamp=stamp_text(),
        )
        address = self._address(key._replace(queue=queue)) if task is not None else (None, None)
        return Offer(letter_id, "", template.priority, _with_reason(template.form.fill(gaps), error, *address))

    def _address(self, key: TemplateKey) -> tuple[str, str] | tuple[None, None]:
        """Returns exchange and routing key of a task; None for both where the row's queue is what is wrong."""
        with suppress(BadRow):
            template = self._templates.of(key)
            return template.exchange, template.routing_key
        return None, None


def _with_reason(message: str, error: str, exchange: str | None, routing_key: str | None) -> str:
    """Returns a message with the property of a dead letter, as ``bury`` writes it."""
    reason = record(
        Reason.BAD_ROW, error, retries=0, exchange=exchange, routing_key=routing_key, worker=anon_nodename()
    )
    # The template of a task that expires has the property ``expiration``, null here. Celery writes no null there.
    return with_properties(message.encode(), {"expiration": None, DEAD_LETTER: reason}).decode()
