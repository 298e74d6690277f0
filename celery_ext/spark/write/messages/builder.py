"""Rows become messages, a column at a time."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from celery_ext.bulk.encoding import text_to_json, to_json
from celery_ext.bulk.template import Template
from celery_ext.spark import task_ids
from celery_ext.spark.errors import BadRow
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.write.column_types import meant_by
from celery_ext.spark.write.columns import Columns
from celery_ext.spark.write.messages.arguments import Arguments
from celery_ext.spark.write.messages.row_errors import RowErrors, dead_letter
from celery_ext.spark.write.messages.schedule import Schedule, in_ms, iso
from celery_ext.spark.write.messages.task_fields import TaskFields
from celery_ext.spark.write.messages.templates import TemplateKey, Templates
from celery_ext.spark.write.messages.values import Values
from kombu_delayq.store.types import Offer

#: Task that a dead letter names when its row names none.
NO_TASK = "celery_ext.spark.bad_row"
_DUE = attrgetter("due")
#: What of a shape are columns.
_KEY_COLUMNS = tuple(name for name in TemplateKey._fields if name != "expires")


class BatchMessages(NamedTuple):
    """What a batch of rows has become.

    Attributes:
        offers: Messages, by the queues that they go to.
        cancelled: Ids that are to be cancelled.
        faults: For each row that makes no task, what is wrong, and its dead letter if one is wanted.
    """

    offers: dict[str, list[Offer]]
    cancelled: list[str]
    faults: list[tuple[str, Offer | None]]


class MessageBuilder:
    """Makes the messages of one job.

    Args:
        plan: What its columns mean.
        options: Of the job.
        templates: Messages with slots.
        schedule: When its tasks are due.
        job: Its name.
        repr_levels: To which depth Celery shows arguments.
    """

    def __init__(
        self, plan: Columns, options: WriteOptions, templates: Templates, schedule: Schedule, job: str, repr_levels: int
    ) -> None:
        self.plan = plan
        self.options = options
        self.templates = templates
        self.schedule = schedule
        self.salt = task_ids.digest(job)[:8]
        self.repr_levels = repr_levels

    def of(self, batch: pa.RecordBatch) -> BatchMessages:
        """Makes the messages of a batch."""
        return _Batch(self, batch).made() if batch.num_rows else BatchMessages({}, [], [])

    def parts(self, batch: pa.RecordBatch, rows: int) -> Iterator[BatchMessages]:
        """Makes the messages of a batch in parts, so that those of one can be sent before the next is made.

        Args:
            batch: The batch.
            rows: Most rows in a part, unless some cancel tasks: searching for ids costs less in one part.
        """
        if batch.num_rows <= rows or "op" in self.plan.reserved:
            yield self.of(batch)
            return
        batch, known = _Batch(self, batch).by_due()
        for at in range(0, batch.num_rows, rows):
            part = {name: values[at : at + rows] for name, values in known.items()}
            yield _Batch(self, batch.slice(at, rows), part).made()


class _Batch:
    """One batch on its way to messages.

    Args:
        job: Whose messages they are.
        batch: The rows.
        known: Of the cached properties here, those that need not be found out again.
    """

    def __init__(
        self, job: MessageBuilder, batch: pa.RecordBatch, known: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        vars(self).update(known)
        self._job = job
        self._batch = batch
        self._count = batch.num_rows
        self._arrays = dict(zip(map(meant_by, batch.schema.names), batch.columns, strict=True))
        uuids = job.plan.uuid_columns
        self._faults = RowErrors()
        self._values = {
            name: Values(array, as_uuid=name in uuids, wrong=self._faults.in_column(name))
            for name, array in self._arrays.items()
        }
        self._fields = TaskFields(self._values, job.options, self._count, self._faults)

    def by_due(self) -> tuple[pa.RecordBatch, dict[str, list[Any]]]:
        """Returns the rows in the order in which they are due, and what is known of them for having asked.

        Redis stores those that are due one after the other faster; their order at one due time stays.
        """
        due_us = self._due_us
        if due_us is None:
            return self._batch, {}
        known: dict[str, list[Any]] = {"_digests": self._digests} if self._job.options.spread else {}
        if not self._faults.of:  # else who makes the messages has to find them, too
            known["_due_us"] = due_us
        order = sorted(range(self._count), key=lambda at: due_us[at] or 0)
        if order == list(range(self._count)):
            return self._batch, known
        batch = self._batch.take(pa.array(order))
        return batch, {name: [values[at] for at in order] for name, values in known.items()}

    def made(self) -> BatchMessages:
        cancels = self._fields.cancels()
        for at in [at for at, task in enumerate(self._tasks) if task is None]:
            if not (at in cancels and self._own_ids[at]):
                self._faults.add(at, "task", None, "names no task")
        if not self._fields.is_constant("task_id"):
            self._faults.parse("task_id", self._own_ids, _filled)
        offers: dict[str, list[Offer]] = {}
        for queue, (rows, all_offers) in self._offers().items():  # finds what is wrong with the rows
            left_out = self._faults.of.keys() | cancels
            left = (each for at, each in zip(rows, all_offers, strict=True) if at not in left_out)
            offers[queue] = sorted(left if left_out else all_offers, key=_DUE)
        cancelled = [self._task_ids[at] for at in sorted(cancels - self._faults.of.keys())]
        return BatchMessages({queue: found for queue, found in offers.items() if found}, cancelled, self._fault_list())

    @cached_property
    def _tasks(self) -> list[str | None]:
        return self._fields.of("task")

    @cached_property
    def _own_ids(self) -> list[str | None]:
        return self._fields.task_ids()

    @cached_property
    def _digests(self) -> list[str]:
        """What the ids of the rows are made from: their own ids, else columns, else all that they say."""
        names = self._job.plan.id_columns or tuple(sorted(self._values))
        columns = [self._values[name].json for name in names]
        if self._fields.is_constant("task"):
            made = task_ids.digests_of(self._job.options.task or "", columns, self._count)
        else:
            rows: Iterable[Sequence[str]] = zip(*columns, strict=True)
            made = [task_ids.digest_of(task or "", row) for task, row in zip(self._tasks, rows, strict=True)]
        if self._fields.is_constant("task_id"):
            return made
        return [task_ids.digest(own) if own else each for own, each in zip(self._own_ids, made, strict=True)]

    @cached_property
    def _task_ids(self) -> list[str]:
        made = task_ids.uuids_of(self._digests)
        if self._fields.is_constant("task_id"):
            return made
        return [own or each for own, each in zip(self._own_ids, made, strict=True)]

    @cached_property
    def _due_us(self) -> list[int | None] | None:
        parts = list(map(task_ids.part_of, self._digests)) if self._job.options.spread else [0.0] * self._count
        return self._job.schedule.due_us(self._arrays, parts, self._faults)

    def _offers(self) -> Mapping[str, tuple[Sequence[int], list[Offer]]]:
        """Returns the numbers of the rows and their messages, by queue."""
        due_us = self._due_us
        due = repeat("") if due_us is None else ["" if us is None else in_ms(us) for us in due_us]
        expiries = self._job.schedule.expiries(self._arrays, self._count, self._faults)
        templates = self._templates(expiries)
        columns = self._columns(due_us, expiries, templates)
        found: defaultdict[str, tuple[list[int], list[Offer]]] = defaultdict(lambda: ([], []))
        if templates.count(templates[0]) == self._count and templates[0] is not None:
            only = templates[0]
            rows = zip(self._task_ids, due, repeat(only.priority), only.filled(columns), strict=False)
            return {only.queue: (range(self._count), list(map(Offer._make, rows)))}
        # The message of a row is made by its own template, with the columns at its place.
        for at, (template, task_id, when, *slots) in enumerate(
            zip(templates, self._task_ids, due, *columns, strict=False)
        ):
            if template is not None:
                offer = Offer(task_id, when, template.priority, template.fill(slots))
                numbers, offers = found[template.queue]
                numbers.append(at)
                offers.append(offer)
        return found

    def _columns(
        self,
        due_us: list[int | None] | None,
        expiries: list[int | None] | None,
        templates: Sequence[Template | None],
    ) -> list[Iterable[str]]:
        """Returns the slots of all rows, in the order of ``SLOTS``; each may be iterated over more than once."""
        schedule = self._job.schedule
        arguments = Arguments(self._values, self._job.plan.arguments, self._count, self._faults, self._job.repr_levels)
        expiries = self._with_defaults(expiries, templates)
        own = list(map(text_to_json, self._task_ids))
        roots = self._fields.json("root_id")
        none = repeat("null")
        return [
            self._bodies(arguments, templates),
            own,
            none if due_us is None else ["null" if us is None else iso(us) for us in due_us],
            none if expiries is None else ["null" if us is None else iso(us) for us in expiries],
            none if expiries is None else ["null" if us is None else schedule.expiration(us) for us in expiries],
            self._fields.json("group_id"),
            own
            if self._fields.is_constant("root_id")
            else [mine if each in ("null", '""') else each for each, mine in zip(roots, own, strict=True)],
            self._fields.json("parent_id"),
            arguments.args_repr(),
            arguments.kwargs_repr(),
            self._fields.headers(),
            task_ids.tags_of(self._digests, self._job.salt),
        ]

    def _bodies(self, arguments: Arguments, templates: Sequence[Template | None]) -> list[str]:
        ways = {(each.serializer, each.compression) for each in set(templates) if each is not None} or {("json", None)}
        made = {way: arguments.bodies(*way) for way in ways}
        if len(made) == 1:
            return made[ways.pop()]
        return [made[each.serializer, each.compression][at] if each else "" for at, each in enumerate(templates)]

    def _with_defaults(
        self, expiries: list[int | None] | None, templates: Sequence[Template | None]
    ) -> list[int | None] | None:
        """Returns expiries with those of the tasks themselves, for rows without one."""
        if all(each is None or each.expires is None for each in set(templates)):
            return expiries
        schedule = self._job.schedule
        return [
            given if given is not None or each is None or each.expires is None else schedule.expiry_us(each.expires)
            for given, each in zip(expiries or [None] * self._count, templates, strict=True)
        ]

    def _templates(self, expiries: list[int | None] | None) -> list[Template | None]:
        columns = [self._fields.of(name) for name in _KEY_COLUMNS]
        expire = [us is not None for us in expiries] if expiries is not None else [False] * self._count
        if self._fields.is_constant(*_KEY_COLUMNS) and len(set(expire)) == 1:
            return [self._template(0, *(column[0] for column in columns), expire[0])] * self._count
        return [self._template(at, *key) for at, key in enumerate(zip(*columns, expire, strict=True))]

    def _template(self, at: int, task: str | None, *key: Any) -> Template | None:
        if task is None:
            return None
        try:
            return self._job.templates.of(TemplateKey(task, *key))
        except BadRow as error:
            self._faults.add(at, "queue", key[0], error)
            return None

    def _fault_list(self) -> list[tuple[str, Offer | None]]:
        queues = self._fields.of("queue") if self._faults.of else []
        found = []
        for at, fault in sorted(self._faults.of.items()):
            told = fault.of_row(self._task_ids[at])
            wanted = self._job.options.dead_letter_queue is not None
            found.append((told, self._dead_letter(at, queues[at], told) if wanted else None))
        return found

    def _dead_letter(self, at: int, queue: str | None, error: str) -> Offer:
        """Makes a dead letter: the row, as keyword arguments of its task."""
        digest, task = self._digests[at], self._tasks[at]
        key = TemplateKey(task or NO_TASK, self._job.options.dead_letter_queue, None, None, None, None, False)
        template = self._job.templates.of(key)
        row = to_json({name: values.python[at] for name, values in self._values.items()})
        arguments = Arguments({"kwargs": Values(pa.array([row]))}, (), 1, RowErrors(), self._job.repr_levels)
        identity = task_ids.uuid_of(task_ids.digest(f"bad {digest}"))
        own, null = f'"{identity}"', "null"
        [body], [shown] = arguments.bodies(template.serializer, template.compression), arguments.kwargs_repr()
        [tag] = task_ids.tags_of([digest], self._job.salt)
        slots = (body, own, null, null, null, null, own, null, '"()"', shown, "", tag)
        way = None
        if task is not None:
            with suppress(BadRow):  # its queue may be what is wrong
                way = self._job.templates.of(key._replace(queue=queue)).way
        return Offer(identity, "", template.priority, dead_letter(template.fill(slots), error, way))


def _filled(given: str) -> str:
    if not given:
        raise ValueError("is empty")
    return given
