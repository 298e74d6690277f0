"""Rows for the far tier: what differs from message to message, as columns of Arrow."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

import json
from binascii import a2b_base64
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from celery_ext.publish.template import Slots, Template
from celery_ext.spark.far.ids import id_columns
from celery_ext.spark.far.rows import EMBED, repr_json
from celery_ext.spark.far.schema import SCHEMA

_NO_ARGS, _NO_EMBED = b"[[], {", f", {EMBED}]".encode()
_decode_first = json.JSONDecoder().raw_decode


class FarRows(NamedTuple):
    """Rows for the far tier.

    Attributes:
        rows: As ``SCHEMA``; the column ``template`` numbers ``templates``.
        templates: Templates of the messages.
    """

    rows: pa.Table
    templates: list[Template]


def far_rows(
    tasks: Sequence[str | None],
    ids: Sequence[str],
    due_us: Sequence[int | None],
    expiries_us: Sequence[int | None] | None,
    templates: Sequence[Template],
    slots: Slots[Iterable[str]],
) -> FarRows:
    """Returns rows for the far tier.

    Args:
        tasks: Names of the tasks.
        ids: Task ids.
        due_us: When the tasks are due, µs since the epoch.
        expiries_us: When they expire, µs since the epoch, or None.
        templates: Templates of the messages.
        slots: What the messages have in the slots of their templates.
    """
    count = len(ids)
    used = list(dict.fromkeys(templates))
    number_of = {template: number for number, template in enumerate(used)}
    uuids, other_ids = id_columns(ids)
    args, kwargs, bodies = _cut(slots.body, templates)
    kwargs_column = pa.array(kwargs, pa.string())
    shown = pa.array(_given(slots.kwargsrepr, count), pa.string())
    derived = repr_json(pc.coalesce(kwargs_column, "{}"))
    columns = {
        "uuid": uuids,
        "id": other_ids,
        "due": pa.array(due_us, pa.int64()).cast(SCHEMA.field("due").type),
        "queue": pa.array([template.queue for template in templates], pa.string()),
        "task": pa.array(tasks, pa.string()),
        "priority": pa.array([template.priority for template in templates], pa.int8()),
        "template": pa.array([number_of[template] for template in templates], pa.int16()),
        "args": pa.array(args, pa.string()),
        "kwargs": kwargs_column,
        "body": pa.array(bodies, pa.binary()),
        "argsrepr": _without(slots.argsrepr, '"()"', count),
        "kwargsrepr": pc.if_else(pc.equal(shown, derived), None, shown),
        "expires": pa.array(expiries_us or [None] * count, pa.int64()).cast(SCHEMA.field("expires").type),
        "group_id": _without(slots.group_id, "null", count),
        "root_id": _other_roots(slots, count),
        "parent_id": _without(slots.parent_id, "null", count),
        "headers": pa.array(
            [f"{{{text[2:]}}}" if text else None for text in _given(slots.headers, count)], pa.string()
        ),
    }
    return FarRows(pa.table(columns, SCHEMA), used)


def _cut(
    bodies: Iterable[str], templates: Sequence[Template]
) -> tuple[list[str | None], list[str | None], list[bytes | None]]:
    """Returns the arguments in bodies as JSON texts, None where they are empty; and the bodies of another layout."""
    args: list[str | None] = []
    kwargs: list[str | None] = []
    others: list[bytes | None] = []
    for text, template in zip(bodies, templates, strict=False):
        raw = a2b_base64(text)
        found: tuple[str | None, str | None, bytes | None] = (None, None, raw)
        if template.serializer == "json" and not template.compression and raw.endswith(_NO_EMBED):
            if raw.startswith(_NO_ARGS):
                found = (None, raw[5 : -len(_NO_EMBED)].decode(), None)
            else:
                found = _cut_args(raw[: -len(_NO_EMBED)].decode(), raw)
        args.append(found[0])
        kwargs.append(None if found[1] == "{}" else found[1])
        others.append(found[2])
    return args, kwargs, others


def _cut_args(text: str, raw: bytes) -> tuple[str | None, str | None, bytes | None]:
    try:
        _, end = _decode_first(text, 1)
    except (ValueError, RecursionError):
        return None, None, raw
    return (text[1:end], text[end + 2 :], None) if text[end : end + 2] == ", " else (None, None, raw)


def _given(texts: Iterable[str], count: int) -> list[str]:
    return list(islice(texts, count))


def _without(texts: Iterable[str], usual: str, count: int) -> pa.Array:
    """Returns texts as a column, null for those that are as usual."""
    found: list[Any] = _given(texts, count)
    return pa.array([None if text == usual else text for text in found], pa.string())


def _other_roots(slots: Slots[Iterable[str]], count: int) -> pa.Array:
    pairs = zip(_given(slots.root_id, count), _given(slots.task_id, count), strict=True)
    return pa.array([None if root == own else root for root, own in pairs], pa.string())
