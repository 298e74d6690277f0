"""Ids of tasks depend on what their rows say, and on nothing else."""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType

from celery_ext.spark import task_id
from celery_ext.spark.errors import InvalidColumns
from celery_ext.spark.options import WriteOptions
from celery_ext.spark.task_ids import digest
from celery_ext.spark.write.columns import Columns
from celery_ext.spark.write.digests import digests_of, parts_of
from tests.support.spark.making import TASK, batch_of, builder_of, ids_of, made_of, offers_of, sole

AT = datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=UTC)


KEYS: dict[str, tuple[pa.Array, Any]] = {
    "number": (pa.array([7]), 7),
    "small number": (pa.array([7], pa.int8()), 7),
    "text": (pa.array(["O'Brien % \\ é"]), "O'Brien % \\ é"),
    "nothing": (pa.array([None], pa.int64()), None),
    "boolean": (pa.array([True]), True),
    "double": (pa.array([0.5]), 0.5),
    "decimal": (pa.array([Decimal("1.50")]), Decimal("1.50")),
    "date": (pa.array([date(2024, 2, 29)]), date(2024, 2, 29)),
    "instant": (pa.array([AT], pa.timestamp("us", "UTC")), AT),
    "instant elsewhere": (pa.array([AT], pa.timestamp("us", "Asia/Tokyo")), AT),
    "local time": (pa.array([AT.replace(tzinfo=None)], pa.timestamp("us")), AT.replace(tzinfo=None)),
    "bytes": (pa.array([b"\xff"]), b"\xff"),
    "array": (pa.array([[1, None]]), [1, None]),
    "struct": (pa.array([{"a": 1, "b": "x"}]), {"a": 1, "b": "x"}),
}


@pytest.mark.parametrize(("column", "value"), KEYS.values(), ids=KEYS)
def test_an_id_is_that_of_task_id(column: pa.Array, value: Any) -> None:
    """Whoever knows the values of the id columns can tell the id, from Python values of any type."""
    batch = batch_of(other=["x"], key=column, n=[3])
    assert ids_of(made_of(batch, id_columns="n,key")) == [task_id(TASK, 3, value)]
    if value is not None:  # NULL alone is no id
        assert ids_of(made_of(batch, id_columns="key")) == [task_id(TASK, value)]


def test_uuids_are_ids_as_uuids() -> None:
    """A UUID column is named in ``task_id`` as what the task gets."""
    batch = batch_of(key=[UUID(int=7).bytes])
    assert ids_of(made_of(batch, id_columns="key", uuid_columns="key")) == [task_id(TASK, UUID(int=7))]


def test_the_known_id_of_a_task() -> None:
    """The id is never to change: it is the SHA-256 of the JSON of task and values, cut to a UUID."""
    assert task_id("orders.close", 7, "x") == str(UUID(digest('["orders.close", 7, "x"]')[:32]))
    assert task_id("orders.close", 7, "x") == "6ef04804-58e4-5eb2-39b6-16848fc80876"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("t", 1), ("t", "1")),
        (("t", "a", "b"), ("t", "ab")),
        (("t", "a, b"), ("t", "a", "b")),
        (("t", None), ("t", "null")),
        (("t", None), ("t",)),
        (("t", '"'), ("t", "\\")),
        (("t1",), ("t", 1)),
        (("t", 1, 2), ("t", 2, 1)),
        (("t", True), ("t", 1)),
    ],
)
def test_different_values_have_different_ids(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    """Values that only look alike, or are cut differently, are different tasks."""
    assert task_id(*one) != task_id(*other)


def rows_of(values: Sequence[tuple[int, str]]) -> pa.RecordBatch:
    return batch_of(n=pa.array([n for n, _ in values], pa.int64()), t=pa.array([t for _, t in values], pa.string()))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 99), st.text(max_size=3)), min_size=1, max_size=20), st.data())
def test_ids_do_not_depend_on_where_a_row_is(rows: list[tuple[int, str]], data: st.DataObject) -> None:
    """Another order of rows or columns, other batches and another job give each row the same id."""
    expected = dict(zip(rows, ids_of(made_of(rows_of(rows))), strict=True))
    shuffled = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))
    builder = builder_of(rows_of(rows).schema, job="another", base_ms=0)
    for part in (shuffled[:cut], shuffled[cut:]):
        found = ids_of(builder.build(rows_of(part).select(["t", "n"])))
        assert found == [expected[row] for row in part]
    assert len(set(expected.values())) == len(set(rows))


def test_equal_rows_share_an_id() -> None:
    """Without id columns rows that say the same are one task, and those that differ in any column are not."""
    batch = batch_of(n=[1, 1, 1, 2], t=["a", "a", "b", "a"], priority=[None, None, None, None])
    first, second, third, fourth = ids_of(made_of(batch))
    assert first == second
    assert len({first, third, fourth}) == 3
    urgent = ids_of(made_of(batch_of(n=[1], t=["a"], priority=[9])))
    assert urgent != [first]


def test_the_task_is_part_of_the_id() -> None:
    """The same key is another task under another name, be that an option or a column."""
    batch = batch_of(n=[1, 1], task=["a", "b"])
    assert ids_of(made_of(batch, id_columns="n")) == [task_id("a", 1), task_id("b", 1)]
    assert ids_of(made_of(batch_of(n=[1]), id_columns="n", task="b")) == [task_id("b", 1)]


def test_a_row_may_have_its_own_id() -> None:
    """What stands in the column task_id is the id, and NULL there leaves it to the other columns."""
    batch = batch_of(n=[1, 2], task_id=["mine", None])
    assert ids_of(made_of(batch, id_columns="n")) == ["mine", task_id(TASK, 2)]


def test_instants_of_any_zone_are_the_same_key() -> None:
    """The id of an instant is that of its time in UTC, whatever the zone of the column."""
    found = {
        ids_of(made_of(batch_of(at=pa.array([AT], pa.timestamp("us", zone))), id_columns="at"))[0]
        for zone in ("UTC", "Europe/Berlin", "+05:30")
    }
    assert found == {task_id(TASK, AT)}
    assert task_id(TASK, AT.astimezone(timezone(timedelta(hours=5)))) not in found


def tag_of(batch: pa.RecordBatch, **how: Any) -> str:
    tag: str = json.loads(sole(made_of(batch, **how))[1].body)["properties"]["delivery_tag"]
    return tag


@pytest.mark.parametrize("columns", [{"n": [1]}, {"n": [1], "task_id": ["mine"]}])
def test_a_delivery_tag_is_of_the_task_and_its_job(columns: dict[str, Any]) -> None:
    """Attempts of a job have the same tag, so that the store knows them; jobs and tasks have different ones.

    kombu keeps unacknowledged messages by tag, so two with one tag would be one.
    """
    tag = tag_of(batch_of(**columns), job="a", base_ms=1)
    assert tag_of(batch_of(**columns), job="a", base_ms=2) == tag
    assert str(UUID(tag)) == tag
    others = {tag_of(batch_of(**columns), job="b"), tag_of(batch_of(n=[2]), job="a"), tag}
    assert len(others) == 3


def test_tags_of_a_large_job_differ() -> None:
    """No two of many tasks of a job share a tag, nor is a tag the id."""
    offers = [offer for _, offer in offers_of(made_of(batch_of(n=list(range(5000)))))]
    tags = {json.loads(offer.body)["properties"]["delivery_tag"] for offer in offers}
    assert len(tags) == len({offer.id for offer in offers}) == 5000
    assert not tags & {offer.id for offer in offers}


def test_parts_are_spread_evenly() -> None:
    """The part of a window that an id has is from 0 to 1, a tenth of the ids in each tenth."""
    parts = parts_of(digests_of([pa.array(map(str, range(10_000)))], 10_000)).to_pylist()
    assert all(0 <= part <= 1 for part in parts)
    for tenth in range(10):
        assert 800 < sum(tenth <= part * 10 < tenth + 1 for part in parts) < 1200


COLUMNS = StructType().add("op", StringType()).add("order_id", LongType())


def test_op_is_refused_where_the_whole_row_makes_the_id() -> None:
    """Ids that are made from all columns would differ between enqueue and cancel, so the job does not begin."""
    with pytest.raises(InvalidColumns, match=r"op needs option id_columns, or a column task_id"):
        Columns.of(COLUMNS, WriteOptions.parse({"task": "orders.close"}))


@pytest.mark.parametrize(
    ("columns", "options"),
    [(COLUMNS, {"id_columns": "order_id"}), (StructType([*COLUMNS, StructField("task_id", StringType())]), {})],
)
def test_op_goes_with_ids_of_the_rows_own(columns: StructType, options: dict[str, str]) -> None:
    """With ``id_columns`` or ``task_id`` both rows have one id."""
    assert "op" in Columns.of(columns, WriteOptions.parse({"task": "orders.close", **options})).reserved
