"""The rows of the far tier become messages again."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from celery_ext.publish.template import Slots
from celery_ext.spark.far.ids import ids_of, is_uuid
from celery_ext.spark.far.schema import BASE, TEMPLATES
from celery_ext.spark.far.templates import StoredTemplate, parsed
from kombu_delayq.message.fields import text_to_json, to_json
from kombu_delayq.message.times import iso_json, ms_text
from kombu_delayq.store.types import Offer

#: Third element of a body, after the arguments. Source: celery.app.amqp.AMQP.as_task_v2
EMBED = to_json({"callbacks": None, "errbacks": None, "chain": None, "chord": None})


def offers_of(rows: pa.Table, manifest: str) -> dict[str, list[Offer]]:
    """Returns the messages of rows by queue, in the order of their due times.

    Args:
        rows: All columns of some rows of a file, with its metadata.
        manifest: Id of the manifest. It decides the delivery tags, so that they are the same whenever it is read.
    """
    metadata = rows.schema.metadata or {}
    templates = parsed(metadata[TEMPLATES])
    base_us = int(metadata[BASE])
    rows = rows.take(pc.sort_indices(rows["due"])).combine_chunks()
    numbers = pc.unique(rows["template"]).to_pylist()
    offers: dict[str, list[Offer]] = {}
    for number in numbers:
        part = rows if len(numbers) == 1 else rows.filter(pc.equal(rows["template"], number))
        template = templates[number]
        offers.setdefault(template.queue, []).extend(_offers(part, template, base_us, manifest))
    return offers


def _offers(rows: pa.Table, template: StoredTemplate, base_us: int, manifest: str) -> Iterable[Offer]:
    ids = ids_of(rows)
    ids_json = list(map(text_to_json, ids)) if rows["uuid"].null_count else [f'"{task_id}"' for task_id in ids]
    due_us = _us(rows["due"]).to_pylist()
    slots: Slots[Iterable[str]] = Slots(
        body=_bodies(rows),
        task_id=ids_json,
        eta=map(iso_json, due_us),
        expires=_texts(_us(rows["expires"]), iso_json),
        expiration=_texts(_us(rows["expires"]), lambda us: f'"{max(us - base_us, 0) // 1000}"'),
        group_id=_or(rows["group_id"], "null"),
        root_id=_roots(rows["root_id"], ids_json),
        parent_id=_or(rows["parent_id"], "null"),
        argsrepr=_or(rows["argsrepr"], '"()"'),
        kwargsrepr=pc.coalesce(rows["kwargsrepr"], repr_json(kwargs_of(rows))).to_pylist(),
        headers=_texts(rows["headers"], lambda text: f", {text[1:-1]}", ""),
        delivery_tag=_tags(ids, not rows["uuid"].null_count, manifest),
    )
    due = map(ms_text, due_us)
    return map(Offer._make, zip(ids, due, repeat(template.priority), template.form.filled(_again(slots)), strict=False))


def args_of(rows: pa.Table) -> pa.ChunkedArray:
    """Returns positional arguments as JSON texts. They mean nothing in rows with a column ``body``."""
    return pc.coalesce(rows["args"], "[]")


def kwargs_of(rows: pa.Table) -> pa.ChunkedArray:
    """Returns keyword arguments as JSON texts. They mean nothing in rows with a column ``body``."""
    return pc.coalesce(rows["kwargs"], "{}")


def repr_json(kwargs: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """Returns what ``kwargsrepr`` mostly is, as JSON text: the keyword arguments with single quotes."""
    return pc.binary_join_element_wise('"', pc.replace_substring(kwargs, '"', "'"), '"', "")


def _bodies(rows: pa.Table) -> list[str]:
    """Returns bodies as they stand in messages: in base64, as JSON texts."""
    texts = pc.binary_join_element_wise("[", args_of(rows), ", ", kwargs_of(rows), f", {EMBED}]", "")
    raws = pc.coalesce(rows["body"], texts.cast(pa.binary())).to_pylist()
    return [f'"{b2a_base64(raw, newline=False).decode()}"' for raw in raws]


def _us(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return times.cast(pa.int64())


def _texts(column: pa.ChunkedArray, write: Callable[[Any], str], missing: str = "null") -> Iterable[str]:
    if column.null_count == len(column):
        return repeat(missing)
    return [missing if value is None else write(value) for value in column.to_pylist()]


def _or(column: pa.ChunkedArray, missing: str) -> Iterable[str]:
    if column.null_count == len(column):
        return repeat(missing)
    texts: list[str] = pc.coalesce(column, missing).to_pylist()
    return texts


def _roots(column: pa.ChunkedArray, ids_json: Sequence[str]) -> Iterable[str]:
    if column.null_count == len(column):
        return ids_json
    return [own if root is None else root for root, own in zip(column.to_pylist(), ids_json, strict=True)]


def _tags(ids: Sequence[str], all_uuids: bool, manifest: str) -> list[str]:
    """Returns delivery tags as JSON texts: the same for a row whenever it is read, and others for another manifest."""
    salt = sha256(manifest.encode()).hexdigest()[:8]
    if all_uuids:
        return [f'"{salt}{task_id[8:]}"' for task_id in ids]
    return [_tag(salt, task_id) for task_id in ids]


def _tag(salt: str, task_id: str) -> str:
    if is_uuid(task_id):
        return f'"{salt}{task_id[8:]}"'
    digits = sha256(task_id.encode(errors="surrogatepass")).hexdigest()
    return f'"{salt}-{digits[:4]}-{digits[4:8]}-{digits[8:12]}-{digits[12:24]}"'


def _again(slots: Slots[Iterable[str]]) -> Slots[Iterable[str]]:
    """Returns columns that can stand in several places of a message."""
    return Slots(*(column if isinstance(column, (list, repeat)) else list(column) for column in slots))
