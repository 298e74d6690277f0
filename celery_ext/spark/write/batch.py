"""Makes the messages of a job, batch by batch, a column at a time."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from celery_ext.publish import Gaps, Template
from celery_ext.spark import task_ids
from celery_ext.spark.write.arguments import Arguments
from celery_ext.spark.write.dead_letters import DeadLetterBuilder
from celery_ext.spark.write.digests import parts_of, tags_of
from celery_ext.spark.write.offers import OfferColumns
from celery_ext.spark.write.task_fields import TaskFields
from celery_ext.spark.write.texts import Pieces, column, in_json, joined, taken
from celery_ext.spark.write.values import BatchRows, iso_texts, ms_texts
from kombu_delayq.message import stamp_text
from kombu_delayq.store import Offer

if TYPE_CHECKING:
    from celery_ext.spark.options import WriteOptions
    from celery_ext.spark.write.columns import Columns
    from celery_ext.spark.write.schedule import Schedule
    from celery_ext.spark.write.templates import Templates

#: About the most bytes of rows that become messages at once: a column of Arrow has at most 2 GB of text.
_PART_BYTES = 100_000_000


class BatchMessages(NamedTuple):
    """What a batch of rows has become.

    Attributes:
        offers: Messages, by the queue that they go to.
        cancelled: Ids of the tasks that are to be cancelled.
        bad_rows: For each row that makes no task, what is wrong, and its dead letter if the job has a queue for it.
    """

    offers: dict[str, OfferColumns]
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
        self, columns: Columns, options: WriteOptions, templates: Templates, schedule: Schedule, job: str
    ) -> None:
        self.columns = columns
        self.options = options
        self.templates = templates
        self.schedule = schedule
        self.salt = task_ids.digest(job)[:8]
        queue = options.dead_letter_queue
        self.dead_letters = None if queue is None else DeadLetterBuilder(queue, templates, self.salt)

    def build(self, batch: pa.RecordBatch) -> BatchMessages:
        """Makes the messages of a batch, by the queue in the order of their due times."""
        return _Batch(self, batch).build() if batch.num_rows else BatchMessages({}, [], [])

    def parts(self, batch: pa.RecordBatch, rows: int) -> Iterator[BatchMessages]:
        """Makes the messages of a batch in parts, so that those of a part can be sent while the next is made.

        Args:
            batch: The batch.
            rows: Most rows in a part. A batch with a column ``op`` is one part: one search for many ids costs less.
        """
        if "op" in self.columns.reserved:
            rows = batch.num_rows
        rows = max(1, min(rows, batch.num_rows * _PART_BYTES // max(batch.nbytes, 1)))
        if batch.num_rows <= rows:
            yield self.build(batch)
            return
        batch, digests = _Batch(self, batch).by_due_time()
        for first in range(0, batch.num_rows, rows):
            known = None if digests is None else digests.slice(first, rows)
            yield _Batch(self, batch.slice(first, rows), known).build()


class _Batch:
    """Makes the messages of one batch. Its digests are None if they are not known yet."""

    def __init__(self, job: MessageBuilder, batch: pa.RecordBatch, digests: pa.Array | None = None) -> None:
        self._job = job
        self._batch = batch
        self._known = digests
        self._count = batch.num_rows
        self._rows = BatchRows(batch, job.columns.uuid_columns)
        self._fields = TaskFields(self._rows, job.options)

    def by_due_time(self) -> tuple[pa.RecordBatch, pa.Array | None]:
        """Returns the rows in the order of their due times, and their digests where these were needed for it.

        Redis stores messages faster in that order.
        """
        order, digests = self._order, self._digests if self._job.options.spread else None
        if order is None:
            return self._batch, digests
        return self._batch.take(order), None if digests is None else digests.take(order)

    def build(self) -> BatchMessages:
        """Makes the messages."""
        self._fields.check(self._job.columns.id_columns)
        cancels = self._fields.cancels
        offers = self._offers()  # adds errors
        cancelled = [self._task_ids[row].as_py() for row in sorted(cancels - self._rows.errors.keys())]
        return BatchMessages(offers, cancelled, self._bad_rows())

    @cached_property
    def _digests(self) -> pa.Array:
        return self._fields.digests(self._job.columns.id_columns) if self._known is None else self._known

    @cached_property
    def _task_ids(self) -> pa.StringArray:
        return self._fields.ids(self._digests)

    @cached_property
    def _due_us(self) -> pa.Array | None:
        return self._job.schedule.due_us(self._rows, parts_of(self._digests) if self._job.options.spread else None)

    @cached_property
    def _order(self) -> pa.Array | None:
        """Numbers of the rows in the order of their due times; None if they are in it."""
        due_us = self._due_us
        if due_us is None or pc.min_max(due_us, skip_nulls=False)["min"] == pc.max(due_us):
            return None
        due_us = pc.coalesce(due_us, 0)
        if pc.all(pc.less_equal(due_us[:-1], due_us[1:])).as_py():
            return None
        return pc.sort_indices(due_us)

    def _offers(self) -> dict[str, OfferColumns]:
        """Returns the messages of the rows that are right, by queue."""
        due: Pieces = [""] if self._due_us is None else [ms_texts(self._due_us)]
        expiries_us, templates = self._expiries_and_templates()
        gaps = self._gaps(self._with_defaults(expiries_us, templates), templates)
        left_out = self._rows.errors.keys() | self._fields.cancels
        is_one = templates[0] is not None and templates.count(templates[0]) == self._count
        order = self._order
        if is_one and not left_out:
            rows_of = {templates[0]: order}
        else:
            found: defaultdict[Template | None, list[int]] = defaultdict(list)
            for row in range(self._count) if order is None else order.to_pylist():
                if row not in left_out:
                    found[templates[row]].append(row)
            rows_of = {template: pa.array(rows, pa.int64()) for template, rows in found.items()}
        queues: defaultdict[str, list[tuple[pa.Array | None, OfferColumns]]] = defaultdict(list)
        for template, rows in rows_of.items():
            if template is not None:
                made = self._of_template(template, rows, due, gaps)
                queues[template.queue].append((rows, made))
        return {queue: self._together(made) for queue, made in queues.items()}

    def _of_template(self, template: Template, rows: pa.Array | None, due: Pieces, gaps: Gaps[Pieces]) -> OfferColumns:
        """Returns messages of a template. rows: Numbers of their rows; None for all."""
        form = template.orphan if self._fields.is_constant("parent_id") else template.form
        first, *others = form.pieces()
        body: list[str | pa.Array] = [first]
        for gap, piece in zip(form.gaps, others, strict=True):
            body += [*getattr(gaps, gap), piece]
        columns: list[Pieces] = [[self._task_ids], due, [str(template.priority)], body]
        if rows is not None:
            columns = [taken(each, rows) for each in columns]
        count = self._count if rows is None else len(rows)
        return OfferColumns.of(*(joined(each, count) for each in columns))

    def _together(self, made: Sequence[tuple[pa.Array | None, OfferColumns]]) -> OfferColumns:
        """Returns the messages of several templates in the order of their due times."""
        offers = OfferColumns.together([part for _, part in made])
        if len(made) == 1:
            return offers
        rows = [row for numbers, _ in made if numbers is not None for row in numbers.to_pylist()]
        places = range(self._count) if self._order is None else self._order.to_pylist()
        place_of = {row: place for place, row in enumerate(places)}
        return offers.take(sorted(range(len(rows)), key=lambda at: place_of[rows[at]]))

    def _expiries_and_templates(self) -> tuple[pa.Array | None, list[Template | None]]:
        expiries_us = self._job.schedule.expiries_us(self._rows)
        expire = [False] * self._count if expiries_us is None else expiries_us.is_valid().to_pylist()
        return expiries_us, self._job.templates.of_rows(self._fields, expire)

    def _gaps(self, expiries_us: pa.Array | None, templates: Sequence[Template | None]) -> Gaps[Pieces]:
        """Returns the gaps of all rows, by column."""
        arguments = Arguments(self._rows, self._job.columns.arguments, self._job.templates.repr_levels)
        shows = self._job.options.argsrepr
        ids: Pieces = ['"', in_json(self._task_ids), '"']
        roots = ids
        if not self._fields.is_constant("root_id"):
            [given] = self._fields.json("root_id")
            own = joined(ids, self._count)
            roots = [pc.if_else(pc.is_in(given, pa.array(["null", '""'])), own, given)]
        return Gaps(
            body=self._bodies(arguments, templates),
            task_id=ids,
            eta=_iso_column(self._due_us),
            expires=_iso_column(expiries_us),
            expiration=_or_null(None if expiries_us is None else self._job.schedule.expirations(expiries_us)),
            group_id=self._fields.json("group_id"),
            root_id=roots,
            parent_id=self._fields.json("parent_id"),
            argsrepr=arguments.args_repr() if shows else ['""'],
            kwargsrepr=arguments.kwargs_repr() if shows else ['""'],
            headers=self._fields.headers(self._job.templates.limits, arguments.pairs),
            delivery_tag=['"', tags_of(self._digests, self._job.salt), '"'],
            timestamp=self._timestamps(),
        )

    def _timestamps(self) -> Pieces:
        """Returns the property of each row that goes to its queue at once; a row with an eta needs none."""
        due_us = self._due_us
        if due_us is None or not due_us.null_count:
            return ["" if due_us is not None else stamp_text()]
        return [pc.if_else(due_us.is_null(), stamp_text(), "")]

    def _bodies(self, arguments: Arguments, templates: Sequence[Template | None]) -> Pieces:
        used = {template for template in templates if template is not None}
        forms = {(template.serializer, template.compression): template for template in used}
        bodies = {form: arguments.bodies(template) for form, template in forms.items()}
        if len(bodies) <= 1:
            return next(iter(bodies.values()), ['""'])
        texts = {form: joined(pieces, self._count) for form, pieces in bodies.items()}
        return [
            column(
                texts[template.serializer, template.compression][row].as_py() if template else ""
                for row, template in enumerate(templates)
            )
        ]

    def _with_defaults(self, expiries_us: pa.Array | None, templates: Sequence[Template | None]) -> pa.Array | None:
        """Returns expiries. Rows without one have the expiry of their task."""
        if all(template is None or template.expires is None for template in set(templates)):
            return expiries_us
        schedule = self._job.schedule
        defaults = [
            None if template is None or template.expires is None else schedule.expiry_us(template.expires)
            for template in templates
        ]
        return pc.coalesce(*(() if expiries_us is None else (expiries_us,)), pa.array(defaults, pa.int64()))

    def _bad_rows(self) -> list[tuple[str, Offer | None]]:
        queues = self._fields.of("queue") if self._rows.errors else []
        bad: list[tuple[str, Offer | None]] = []
        for row, error in sorted(self._rows.errors.items()):
            text = error.describe(self._task_ids[row].as_py())
            letter = None
            if self._job.dead_letters is not None:
                values = {name: column.python[row] for name, column in self._rows.columns.items()}
                digest = self._digests[row].as_py()
                letter = self._job.dead_letters.build(values, self._fields.tasks[row], queues[row], digest, text)
            bad.append((text, letter))
        return bad


def _iso_column(times_us: pa.Array | None) -> Pieces:
    """Returns times as JSON texts, ``null`` for each that is missing."""
    return ["null"] if times_us is None else _or_null(joined(['"', iso_texts(times_us), '"'], len(times_us)))


def _or_null(texts: pa.Array | None) -> Pieces:
    """Returns JSON texts, ``null`` for each that is missing."""
    return ["null"] if texts is None else [pc.coalesce(texts, "null") if texts.null_count else texts]
