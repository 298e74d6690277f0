"""Rows become messages."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from json.encoder import encode_basestring_ascii as as_json_string
from typing import Any, NamedTuple

import pyarrow as pa

from celery_ext.spark import ids
from celery_ext.spark.arguments import Arguments, arrays_by_name
from celery_ext.spark.bad_rows import Faults, dead_letter
from celery_ext.spark.errors import BadRow
from celery_ext.spark.options import PRIORITIES, WriteOptions
from celery_ext.spark.plan import Plan
from celery_ext.spark.schedule import Schedule, iso
from celery_ext.spark.templates import Shape, Template, Templates
from celery_ext.spark.values import Values, to_json
from kombu_delayq.results import Offer

#: Headers that Celery itself writes.
_CELERYS = frozenset(
    (
        *("lang", "task", "id", "shadow", "eta", "expires", "group", "group_index", "retries", "timelimit"),
        *("root_id", "parent_id", "argsrepr", "kwargsrepr", "origin", "ignore_result", "replaced_task_nesting"),
        *("stamped_headers", "stamps", "compression"),
    )
)
#: Task that a dead letter names when its row names none.
NO_TASK = "celery_ext.spark.bad_row"


class Made(NamedTuple):
    """What a batch of rows has become.

    Attributes:
        offers: Messages with the queues that they go to.
        cancelled: Ids that are to be cancelled.
        faults: For each row that makes no task, what is wrong, and its dead letter if one is wanted.
    """

    offers: list[tuple[str, Offer]]
    cancelled: list[str]
    faults: list[tuple[str, Offer | None]]


class Messages:
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
        self, plan: Plan, options: WriteOptions, templates: Templates, schedule: Schedule, job: str, repr_levels: int
    ) -> None:
        self._plan = plan
        self._options = options
        self._templates = templates
        self._schedule = schedule
        self._salt = ids.digest(job)[:8]
        self._levels = repr_levels

    def of(self, batch: pa.RecordBatch) -> Made:
        """Makes the messages of a batch."""
        return _Batch(self, batch).made()


class _Batch:
    """One batch on its way to messages."""

    def __init__(self, job: Messages, batch: pa.RecordBatch) -> None:
        self._job = job
        self._plan, self._options = job._plan, job._options
        self._arrays = arrays_by_name(batch)
        self._count = batch.num_rows
        self._faults = Faults()
        self._values = {
            name: Values(array, as_uuid=name in self._plan.uuid_columns) for name, array in self._arrays.items()
        }
        self._tasks = self._given("task", _named)

    def made(self) -> Made:
        digests = self._digests()
        given = self._values["task_id"].python if "task_id" in self._values else repeat(None)
        task_ids = [own or ids.uuid_of(digest) for own, digest in zip(given, digests, strict=False)]
        cancels = set(self._cancels())
        for at, task in enumerate(self._tasks):
            if task is None and not (at in cancels and self._own_id(at)):
                self._faults.add(at, "task", None, "names no task")
        texts = list(self._filled(digests, task_ids))  # finds what is wrong with the rows
        faults = [
            (fault.of_row(task_ids[at]), self._dead_letter(at, digests[at], fault.of_row(task_ids[at])))
            for at, fault in sorted(self._faults.of.items())
        ]
        bad = self._faults.of
        offers = [made for at, made in enumerate(texts) if made and at not in bad and at not in cancels]
        return Made(offers, [task_ids[at] for at in sorted(cancels) if at not in bad], faults)

    def _own_id(self, at: int) -> Any:
        return self._values["task_id"].python[at] if "task_id" in self._values else None

    def _digests(self) -> list[str]:
        """Returns what the ids of the rows are made from: their own ids, else columns, else all that they say."""
        names = self._plan.id_columns or tuple(sorted(self._values))
        own = self._values["task_id"].python if "task_id" in self._values else [None] * self._count
        columns = [self._values[name].json for name in names]
        made = (
            ids.digest_of(task or "", row) for task, row in zip(self._tasks, _rows(columns, self._count), strict=True)
        )
        return [ids.digest(task_id) if task_id else each for task_id, each in zip(own, made, strict=True)]

    def _cancels(self) -> Iterator[int]:
        if "op" in self._values:
            for at, op in enumerate(self._values["op"].python):
                if op == "cancel":
                    yield at
                elif op not in (None, "enqueue"):
                    self._faults.add(at, "op", op, "is neither enqueue nor cancel")

    def _filled(self, digests: list[str], task_ids: list[str]) -> Iterator[tuple[str, Offer] | None]:
        """Yields the message of each row, None for a row that has none."""
        parts = list(map(ids.part_of, digests)) if self._options.spread else [0.0] * self._count
        due_us = self._job._schedule.due_us(self._arrays, parts, self._faults)
        expiries = self._job._schedule.expiries(self._arrays, self._count, self._faults)
        templates = list(self._templates(expiries))
        columns = self._columns(digests, task_ids, due_us, expiries, templates)
        due = repeat("") if due_us is None else ("" if us is None else repr(us / 1000) for us in due_us)
        for template, task_id, when, slots in zip(templates, task_ids, due, columns, strict=False):
            if template is None:
                yield None
            else:
                text = template.fill(slots)
                yield template.queue, Offer(task_id, when, template.priority, text)

    def _columns(
        self,
        digests: list[str],
        task_ids: list[str],
        due_us: list[int | None] | None,
        expiries: list[int | None] | None,
        templates: Sequence[Template | None],
    ) -> Iterator[tuple[str, ...]]:
        """Yields the slots of each row."""
        schedule = self._job._schedule
        arguments = Arguments(self._values, self._plan.arguments, self._count, self._faults, self._job._levels)
        expiries = self._with_defaults(expiries, templates)
        own = list(map(as_json_string, task_ids))
        return zip(
            self._bodies(arguments, templates),
            own,
            repeat("null") if due_us is None else ("null" if us is None else iso(us) for us in due_us),
            repeat("null") if expiries is None else ("null" if us is None else iso(us) for us in expiries),
            repeat("null")
            if expiries is None
            else ("null" if us is None else schedule.expiration(us) for us in expiries),
            self._texts("group_id"),
            (each if each != "null" else mine for each, mine in zip(self._texts("root_id"), own, strict=False)),
            self._texts("parent_id"),
            arguments.args_repr(),
            arguments.kwargs_repr(),
            self._headers(),
            (f'"{ids.tag_of(digest, self._job._salt)}"' for digest in digests),
            strict=False,
        )

    def _bodies(self, arguments: Arguments, templates: Sequence[Template | None]) -> Iterator[str]:
        ways = {(each.serializer, each.compression) for each in templates if each is not None}
        if len(ways) <= 1:
            return arguments.bodies(*(ways.pop() if ways else ("json", None)))
        made = {way: list(arguments.bodies(*way)) for way in ways}
        first = next(iter(ways))
        return (made[(each.serializer, each.compression) if each else first][at] for at, each in enumerate(templates))

    def _with_defaults(
        self, expiries: list[int | None] | None, templates: Sequence[Template | None]
    ) -> list[int | None] | None:
        """Returns expiries with those of the tasks themselves, for rows without one."""
        if all(each is None or each.expires_s is None for each in templates):
            return expiries
        schedule = self._job._schedule
        return [
            given if given is not None or each is None or each.expires_s is None else schedule.expiry_us(each.expires_s)
            for given, each in zip(expiries or repeat(None), templates, strict=False)
        ]

    def _templates(self, expiries: list[int | None] | None) -> Iterator[Template | None]:
        shapes = zip(
            self._tasks,
            self._given("queue", _named),
            self._given("priority", _priority),
            self._given("time_limit", _limit),
            self._given("soft_time_limit", _limit),
            self._given("ignore_result", bool),
            repeat(False) if expiries is None else (us is not None for us in expiries),
            strict=False,
        )
        for at, shape in enumerate(shapes):
            try:
                yield self._job._templates.of(Shape(*shape)) if shape[0] is not None else None
            except BadRow as error:
                self._faults.add(at, "queue", shape[1], error)
                yield None

    def _given(self, name: str, parse: Callable[[Any], Any]) -> Sequence[Any]:
        """Returns what each row says in a column, else the option of this name."""
        default = getattr(self._options, name)
        if name not in self._values:
            return [default] * self._count
        found = self._faults.parse(name, self._values[name].python, parse)
        return [default if each is None else each for each in found]

    def _texts(self, name: str) -> Iterable[str]:
        return self._values[name].json if name in self._values else repeat("null")

    def _headers(self) -> Iterable[str]:
        default = _headers(self._options.headers or {})
        if "headers" not in self._values:
            return repeat(default)
        found = self._faults.parse("headers", self._values["headers"].python, _headers)
        return (default if each is None else each for each in found)

    def _dead_letter(self, at: int, digest: str, error: str) -> Offer | None:
        queue = self._options.dead_letter_queue
        if queue is None:
            return None
        shape = Shape(self._tasks[at] or NO_TASK, queue, None, None, None, None, False)
        row = {name: values.python[at] for name, values in self._values.items()}
        identity = ids.uuid_of(ids.digest(f"bad {digest}"))
        slots = self._slots_of_bad(row, identity, digest)
        template = self._job._templates.of(shape)
        return Offer(identity, "", template.priority, dead_letter(template.fill(slots), error))

    def _slots_of_bad(self, row: dict[str, Any], identity: str, digest: str) -> tuple[str, ...]:
        arrays = {name: pa.array([json.dumps(value, default=to_json)]) for name, value in (("kwargs", row),)}
        arguments = Arguments(
            {name: Values(array) for name, array in arrays.items()}, (), 1, Faults(), self._job._levels
        )
        own, null = f'"{identity}"', "null"
        [body], [shown] = arguments.bodies("json", None), arguments.kwargs_repr()
        tag = f'"{ids.tag_of(digest, self._job._salt)}"'
        return body, own, null, null, null, null, own, null, '"()"', shown, "", tag


def _rows(columns: Sequence[Sequence[str]], count: int) -> Iterator[Sequence[str]]:
    return zip(*columns, strict=True) if columns else iter([()] * count)


def _named(given: str) -> str:
    if not given.strip():
        raise ValueError("is empty")
    return given


def _priority(given: int) -> int:
    if given not in PRIORITIES:
        raise ValueError("is not a priority from 0 to 9")
    return given


def _limit(given: float) -> float:
    if not math.isfinite(given) or given <= 0:
        raise ValueError("is no limit of time in s")
    return given


def _headers(given: Any) -> str:
    """Returns headers as the JSON text that follows Celery's own."""
    found = json.loads(given) if isinstance(given, str) else given
    if not isinstance(found, dict):
        raise ValueError("is not a JSON object")
    own = sorted(_CELERYS & found.keys())
    if own:
        raise ValueError(f"sets headers that Celery itself writes: {', '.join(own)}")
    return f", {to_json(found)[1:-1]}" if found else ""
