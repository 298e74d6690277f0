"""Rows of the far tier: the same messages come out of the files as go to Redis without it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from celery_ext.spark.far.filesystem import Files
from celery_ext.spark.far.ids import ids_of
from celery_ext.spark.far.rows import offers_of
from celery_ext.spark.far.tier import FarTier
from celery_ext.spark.far.tombstones import Tombstones
from celery_ext.spark.far.writer import FarWriter
from kombu_delayq.store.types import Offer
from tests.support.spark import apps
from tests.support.spark.making import batch_of, builder_of
from tests.support.spark.making import offers_of as offers_made

BASE_MS = 2e12
START = datetime(2044, 1, 1, 12, 30, tzinfo=UTC)
ETAS = pa.array([START + timedelta(minutes=17 * n, microseconds=n) for n in range(12)], pa.timestamp("us", "UTC"))
UUID = "5f0a7e3c-0b1d-4f6e-9a52-0123456789ab"


def _written(path: Path, batch: pa.RecordBatch, settings: Any = None, **options: Any) -> list[tuple[str, Offer]]:
    """Writes a batch to a tier, and returns the messages that are read from its files."""
    builder = builder_of(batch.schema, settings, base_ms=BASE_MS, **options)
    near, late = builder.split(batch, round(BASE_MS * 1000))
    assert (near.num_rows, late.bad_rows) == (0, [])
    assert late.rows is not None
    writer = FarWriter(Files(str(path)), "j", 1, "a", BASE_MS)
    writer.add(*late.rows)
    tier = FarTier.of(str(path))
    found: list[tuple[str, Offer]] = []
    for file in writer.close():
        for queue, offers in offers_of(tier.table(file), "m").items():
            found += [(queue, offer) for offer in offers]
    return found


def _seen(offers: list[tuple[str, Offer]]) -> list[Any]:
    """Returns all of messages but the delivery tag, which is another in each job."""
    seen = []
    for queue, (task_id, due, priority, body) in offers:
        message = json.loads(body)
        del message["properties"]["delivery_tag"]
        del message["properties"]["reply_to"], message["headers"]["origin"]
        seen.append((queue, task_id, float(due), priority, message))
    return sorted(seen, key=lambda row: (row[2], row[1]))


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ({"n": list(range(12))}, {}),
        (
            {"text": ["it's", 'a "b"', "é", "\\", "", None, "%s", "ж" * 2000, "a\nb", "null", "{}", "'"]},
            {"priority": "5"},
        ),
        ({"args": ["[1, [2]]"] * 6 + [None] * 6, "kwargs": ['{"a": {"b": [1.5, true]}}'] * 4 + [None] * 8}, {}),
        ({"n": [1.5] * 12, "flag": [True, None] * 6, "at": ETAS, "rows": [[{"a": 1}]] * 12}, {"expires": "90d"}),
        ({"n": [1] * 12, "task_id": [UUID, "own id", 'q"\\', *map(str, range(9))]}, {"headers": '{"a": [1]}'}),
        ({"n": list(range(12)), "queue": ["q1", "q2", None] * 4, "priority": list(range(10)) + [None] * 2}, {}),
        ({"n": [1] * 12, "root_id": ["r", None] * 6, "group_id": ["g"] * 12, "task_id": list("abcdefghijkl")}, {}),
        ({"n": list(range(12)), "task": ["t1", "t2", "t3"] * 4, "expires": [None, 1e9] * 6}, {"time_limit": "9"}),
        ({"n": list(range(12))}, {"spread": "3h"}),
    ],
)
def test_the_same_messages(tmp_path: Path, columns: dict[str, Any], options: dict[str, Any]) -> None:
    """Whatever the rows have, the message from the file is the one that goes to Redis otherwise."""
    batch = batch_of(eta=ETAS, **columns)
    given = {} if "task_id" in columns or "n" not in columns or columns["n"][0] != 0 else {"id_columns": "n"}
    builder = builder_of(batch.schema, base_ms=BASE_MS, **options, **given)
    assert _seen(_written(tmp_path, batch, **options, **given)) == _seen(offers_made(builder.build(batch)))


@pytest.mark.parametrize(("serializer", "compression"), [("pickle", None), ("json", "zlib"), ("msgpack", "bzip2")])
def test_other_bodies(tmp_path: Path, serializer: str, compression: str | None) -> None:
    """Bodies of other serializers, and compressed ones, are kept as they are."""
    app = apps.make("far_bodies", task_serializer=serializer, task_compression=compression)
    settings = apps.settings_of(app)
    batch = batch_of(eta=ETAS, n=list(range(12)))
    builder = builder_of(batch.schema, settings, base_ms=BASE_MS)
    assert _seen(_written(tmp_path, batch, settings)) == _seen(offers_made(builder.build(batch)))


def test_a_row_has_the_same_bytes_whenever_it_is_read(tmp_path: Path) -> None:
    """Redis takes two readings of a row for one message, and rows of two manifests for two."""
    batch = batch_of(eta=ETAS, task_id=[UUID, *"abcdefghijk"], n=[1] * 12)
    late = builder_of(batch.schema, base_ms=BASE_MS).split(batch, 0)[1].rows
    assert late is not None
    writer = FarWriter(Files(str(tmp_path)), "j", 1, "a", BASE_MS)
    writer.add(*late)
    file = writer.close()[0]
    assert file.path.startswith("data/hour=2044-01-01T12/")
    table = FarTier.of(str(tmp_path)).table(file)
    one, two, other = (
        {offer.id: offer.body for offers in offers_of(table, name).values() for offer in offers}
        for name in ("m", "m", "m2")
    )
    assert one == two
    assert one.keys() == other.keys()
    assert all(one[task_id] != other[task_id] for task_id in one)


def test_tombstones_leave_rows_of_other_manifests(tmp_path: Path) -> None:
    """A tombstone hides the rows of its id in its manifest, and no other."""
    rows = pa.table({"uuid": pa.array([bytes(16), None, None], pa.binary(16)), "id": [None, "a", "b"]})
    dead = Tombstones.of(pa.table({"manifest": ["m", "m", "n"], "id": [ids_of(rows)[0], "b", "a"]}))
    live = dead.live(rows, "m")
    assert live is not None
    assert live.to_pylist() == [False, True, False]
    assert dead.live(rows, "other") is None


def test_bad_rows_are_told_among_those_that_are_late() -> None:
    """A row that makes no task is left out of the files, with its reason, and the others are there."""
    batch = batch_of(eta=ETAS, n=list(range(12)), priority=[11] + [1] * 11)
    near, late = builder_of(batch.schema, base_ms=BASE_MS).split(batch, 0)
    assert near.num_rows == 0
    assert late.rows is not None
    assert len(late.rows.rows) == 11
    [(error, _)] = late.bad_rows
    assert "is not a priority" in error


def test_rows_before_the_horizon_stay(tmp_path: Path) -> None:
    """Rows that are due at the horizon or before it go to Redis, as do rows that are due at once."""
    etas = pa.array([START, START + timedelta(microseconds=1), None], pa.timestamp("us", "UTC"))
    batch = batch_of(eta=etas, n=[1, 2, 3])
    near, late = builder_of(batch.schema, base_ms=BASE_MS).split(batch, round(START.timestamp() * 1e6))
    assert near["n"].to_pylist() == [1, 3]
    assert late.rows is not None
    assert late.rows.rows["kwargs"].to_pylist() == ['{"n": 2}']
