"""Makes the messages of a job, batch by batch, a column at a time."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from celery_ext.publish import Gaps, Template
from celery_ext.spark import task_ids
from celery_ext.spark.write.arguments import Arguments
from celery_ext.spark.write.dead_letters import DeadLetterBuilder
from celery_ext.spark.write.task_fields import TaskFields
from celery_ext.spark.write.values import BatchRows, iso_texts
from kombu_delayq.message import ms_text, stamp_text, text_to_json
from kombu_delayq.store import Offer

if TYPE_CHECKING:
    from celery_ext.spark.options import WriteOptions
    from celery_ext.spark.write.columns import Columns
    from celery_ext.spark.write.schedule import Schedule
    from celery_ext.spark.write.templates import Templates


class BatchMessages(NamedTuple):
    """What a batch of rows has become.

    Attributes:
        offers: Messages, by the queue that they go to.
        cancelled: Ids of the tasks that are to be cancelled.
        bad_rows: For each row that makes no task, what is wrong, and its dead letter if the job has a queue for it.
    """

    offers: dict[str, list[Offer]]
    cancelled: list[str]
    bad_rows: list[tuple[str, Offer | None]]


class MessageBuilder:
    """Makes the messages of one job.

    Args:
        columns: What the columns of the rows mean.
        options: Options of the job.
        templates: Templates of the messages.
        schedule: When the tasks are due.
        job: Name of the job.

    Attributes:
        salt: 8 hex digits that stand for the job.
        dead_letters: Makes the dead letters; None when the job has no queue for them.
    """

    def __init__(
        self, columns: "Columns", options: "WriteOptions", templates: "Templates", schedule: "Schedule", job: str
    ) -> None:
        self.columns = columns
        self.options = options
        self.templates = templates
        self.schedule = schedule
        self.salt = task_ids.digest(job)[:8]
        queue = options.dead_letter_queue
        self.dead_letters = None if queue is None else DeadLetterBuilder(queue, templates, self.salt)

    def build(self, batch: pa.RecordBatch) -> BatchMessages:
        """Makes the messages of a batch."""
        return _Batch(self, batch).build() if batch.num_rows else BatchMessages({}, [], [])

    def parts(self, batch: pa.RecordBatch, rows: int) -> Iterator[BatchMessages]:
        """Makes the messages of a batch in parts, so that those of a part can be sent while the next is made.

        Args:
            batch: The batch.
            rows: Most rows in a part. A batch with a column ``op`` is one part: one search for many ids costs less.
        """
        if batch.num_rows <= rows or "op" in self.columns.reserved:
            yield self.build(batch)
            return
        batch, digests = _Batch(self, batch).by_due_time()
        for first in range(0, batch.num_rows, rows):
            yield _Batch(self, batch.slice(first, rows), digests[first : first + rows]).build()


_DUE = attrgetter("due")


class _Batch:
    """Makes the messages of one batch. Its digests are empty if they are not known yet."""

    def __init__(self, job: MessageBuilder, batch: pa.RecordBatch, digests: Sequence[str] = ()) -> None:
        self._job = job
        self._batch = batch
        self._known = digests
        self._count = batch.num_rows
        self._rows = BatchRows(batch, job.columns.uuid_columns)
        self._fields = TaskFields(self._rows, job.options)

    def by_due_time(self) -> tuple[pa.RecordBatch, Sequence[str]]:
        """Returns the rows in the order of their due times, and their digests where these were needed for it.

        Redis stores messages faster in that order.
        """
        due_us = self._due_us
        if due_us is None:
            return self._batch, []
        order = sorted(range(self._count), key=lambda row: due_us[row] or 0)
        digests = [self._digests[row] for row in order] if self._job.options.spread else []
        return self._batch.take(pa.array(order)), digests

    def build(self) -> BatchMessages:
        """Makes the messages."""
        self._fields.check(self._job.columns.id_columns)
        cancels = self._fields.cancels
        offers: dict[str, list[Offer]] = {}
        for queue, (rows, all_offers) in self._offers().items():  # _offers adds errors
            left_out = self._rows.errors.keys() | cancels
            good = [offer for row, offer in zip(rows, all_offers, strict=True) if row not in left_out]
            if good:
                offers[queue] = sorted(good, key=_DUE)
        cancelled = [self._task_ids[row] for row in sorted(cancels - self._rows.errors.keys())]
        return BatchMessages(offers, cancelled, self._bad_rows())

    @cached_property
    def _digests(self) -> Sequence[str]:
        return self._known or self._fields.digests(self._job.columns.id_columns)

    @cached_property
    def _task_ids(self) -> list[str]:
        return self._fields.ids(self._digests)

    @cached_property
    def _due_us(self) -> Sequence[int | None] | None:
        parts = list(map(task_ids.part_of, self._digests)) if self._job.options.spread else None
        return self._job.schedule.due_us(self._rows, parts)

    def _offers(self) -> Mapping[str, tuple[Sequence[int], list[Offer]]]:
        """Returns row numbers and messages, by queue."""
        due_us = self._due_us
        due = repeat("") if due_us is None else ["" if us is None else ms_text(us) for us in due_us]
        expiries_us, templates = self._expiries_and_templates()
        gaps = self._gaps(self._with_defaults(expiries_us, templates), templates)
        if templates[0] is not None and templates.count(templates[0]) == self._count:
            only = templates[0]
            columns = zip(self._task_ids, due, repeat(only.priority), only.form.filled(gaps), strict=False)
            return {only.queue: (range(self._count), list(map(Offer._make, columns)))}
        found: defaultdict[str, tuple[list[int], list[Offer]]] = defaultdict(lambda: ([], []))
        rows = enumerate(zip(templates, self._task_ids, due, *gaps, strict=False))
        for row, (template, task_id, when, *texts) in rows:
            if template is not None:
                numbers, offers = found[template.queue]
                numbers.append(row)
                offers.append(Offer(task_id, when, template.priority, template.form.fill(Gaps(*texts))))
        return found

    def _expiries_and_templates(self) -> tuple[list[int | None] | None, list[Template | None]]:
        expiries_us = self._job.schedule.expiries_us(self._rows)
        expire = [False] * self._count if expiries_us is None else [us is not None for us in expiries_us]
        return expiries_us, self._job.templates.of_rows(self._fields, expire)

    def _gaps(self, expiries_us: list[int | None] | None, templates: Sequence[Template | None]) -> Gaps[Iterable[str]]:
        """Returns the gaps of all rows, by column. A column can be iterated over more than once."""
        arguments = Arguments(self._rows, self._job.columns.arguments, self._job.templates.repr_levels)
        ids = list(map(text_to_json, self._task_ids))
        roots = ids
        if not self._fields.is_constant("root_id"):
            given = self._fields.json("root_id")
            roots = [own if root in ("null", '""') else root for root, own in zip(given, ids, strict=True)]
        return Gaps(
            body=self._bodies(arguments, templates),
            task_id=ids,
            eta=_iso_column(self._due_us),
            expires=_iso_column(expiries_us),
            expiration=_expirations(self._job.schedule, expiries_us),
            group_id=self._fields.json("group_id"),
            root_id=roots,
            parent_id=self._fields.json("parent_id"),
            argsrepr=arguments.args_repr(),
            kwargsrepr=arguments.kwargs_repr(),
            headers=self._fields.headers(self._job.templates.limits, arguments.pairs),
            delivery_tag=task_ids.tags_of(self._digests, self._job.salt),
            timestamp=self._timestamps(),
        )

    def _timestamps(self) -> Iterable[str]:
        """Returns the property of each row that goes to its queue at once; a row with an eta needs none."""
        now, due_us = stamp_text(), self._due_us
        return [now] * self._count if due_us is None else [now if us is None else "" for us in due_us]

    def _bodies(self, arguments: Arguments, templates: Sequence[Template | None]) -> list[str]:
        used = {template for template in templates if template is not None}
        forms = {(template.serializer, template.compression) for template in used} or {("json", None)}
        bodies = {form: arguments.bodies(*form) for form in forms}
        if len(bodies) == 1:
            return bodies[forms.pop()]
        return [
            bodies[template.serializer, template.compression][row] if template else ""
            for row, template in enumerate(templates)
        ]

    def _with_defaults(
        self, expiries_us: list[int | None] | None, templates: Sequence[Template | None]
    ) -> list[int | None] | None:
        """Returns expiries. Rows without one have the expiry of their task."""
        if all(template is None or template.expires is None for template in set(templates)):
            return expiries_us
        schedule = self._job.schedule
        return [
            us
            if us is not None or template is None or template.expires is None
            else schedule.expiry_us(template.expires)
            for us, template in zip(expiries_us or [None] * self._count, templates, strict=True)
        ]

    def _bad_rows(self) -> list[tuple[str, Offer | None]]:
        queues = self._fields.of("queue") if self._rows.errors else []
        bad: list[tuple[str, Offer | None]] = []
        for row, error in sorted(self._rows.errors.items()):
            text = error.describe(self._task_ids[row])
            letter = None
            if self._job.dead_letters is not None:
                values = {name: column.python[row] for name, column in self._rows.columns.items()}
                task = self._fields.tasks[row]
                letter = self._job.dead_letters.build(values, task, queues[row], self._digests[row], text)
            bad.append((text, letter))
        return bad


def _iso_column(times_us: Sequence[int | None] | None) -> Iterable[str]:
    """Returns times as JSON texts, ``null`` for each that is missing."""
    if times_us is None:
        return repeat("null")
    texts = iso_texts(pa.array(times_us, pa.int64())).to_pylist()
    return ["null" if text is None else f'"{text}"' for text in texts]


def _expirations(schedule: "Schedule", expiries_us: Sequence[int | None] | None) -> Iterable[str]:
    """Returns the message property of each expiry as JSON text, ``null`` for each that is missing."""
    if expiries_us is None:
        return repeat("null")
    return ["null" if us is None else schedule.expiration(us) for us in expiries_us]
