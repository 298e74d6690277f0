"""Arguments reach the task as Celery's own messages bring them, and are shown as Celery shows them."""

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from celery.utils.saferepr import saferepr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kombu.utils.json import dumps, loads

from celery_ext.publish.write import texts_of
from celery_ext.spark.write.arguments import REPR_LENGTH
from celery_ext.spark.write.values import Values
from kombu_delayq.message.fields import to_json
from tests.support.spark.making import arguments_in, batch_of, made_of, seen, sole

MANY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    ["", "'", '"', "\\", "\\'", "%s", "%", "{}", "\n\t\0", "é😀", "it's", "x" * 1000]
)
#: Values of Spark's types, with the type that Arrow gives them.
SCALARS: dict[str, tuple[st.SearchStrategy[Any], pa.DataType]] = {
    "text": (TEXTS, pa.string()),
    "whole": (st.integers(-(2**63), 2**63 - 1), pa.int64()),
    "double": (st.floats(), pa.float64()),
    "boolean": (st.booleans(), pa.bool_()),
    "decimal": (st.decimals(-(10**9), 10**9, places=4, allow_nan=False, allow_infinity=False), pa.decimal128(20, 4)),
    "date": (st.dates(), pa.date32()),
    "instant": (
        st.datetimes(timezones=st.just(UTC), min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)).map(
            lambda at: at.replace(fold=0)
        ),
        pa.timestamp("us", tz="UTC"),
    ),
    "local": (st.datetimes().map(lambda at: at.replace(fold=0)), pa.timestamp("us")),
    "bytes": (st.binary(max_size=30), pa.binary()),
}
COLUMNS = st.fixed_dictionaries(
    {}, optional={name: st.lists(st.none() | values, min_size=2, max_size=2) for name, (values, _) in SCALARS.items()}
).filter(bool)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def same(found: Any, expected: Any) -> bool:
    """Whether values are the same for a task, a NaN being the same as a NaN."""
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(found, float) and math.isnan(found)
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[name], each) for name, each in expected.items())
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return type(found) is type(expected) and bool(found == expected)


def shown(values: Values) -> list[str] | None:
    """Returns how Celery shows values; they are read from JSON."""
    return None if values.reprs is None else [json.loads(f'"{text}"') for text in values.reprs.to_pylist()]


def check(batch: pa.RecordBatch, args: list[Any], kwargs: list[Any], **options: str) -> None:
    """Compares the arguments of each row with what Celery would make of the Python values."""
    offers = made_of(batch, **options).offers["celery"]
    assert len(offers) == batch.num_rows
    for at, (positional, named) in enumerate(zip(args, kwargs, strict=True)):
        message = json.loads(offers[at].body)
        found_args, found_kwargs, _ = arguments_in(message)
        assert same(found_args, loads(dumps(list(positional))))
        assert same(found_kwargs, loads(dumps(named)))
        assert message["headers"]["argsrepr"] == saferepr(positional or (), REPR_LENGTH)
        assert message["headers"]["kwargsrepr"] == saferepr(named, REPR_LENGTH)


@MANY
@given(COLUMNS)
def test_columns_are_keyword_arguments(columns: dict[str, list[Any]]) -> None:
    """Columns of any of Spark's simple types, with NULLs, arrive and are shown as from ``apply_async``."""
    batch = batch_of(**{name: pa.array(each, SCALARS[name][1]) for name, each in columns.items()})
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    check(batch, [()] * 2, rows)


def test_arguments_are_shown_unless_the_job_says_no() -> None:
    """Without its texts a message is shorter, and else the same."""
    batch = batch_of(order=["x" * 500])
    shown, hidden = (json.loads(sole(made_of(batch, argsrepr=argsrepr))[1].body) for argsrepr in ("true", "false"))
    assert (hidden["headers"].pop("argsrepr"), hidden["headers"].pop("kwargsrepr")) == ("", "")
    assert (shown["headers"].pop("argsrepr"), len(shown["headers"].pop("kwargsrepr"))) == ("()", 513)
    assert seen(hidden) == seen(shown)


@MANY
@given(COLUMNS)
def test_the_texts_of_values_are_those_of_python(columns: dict[str, list[Any]]) -> None:
    """The same bytes from Python and from Arrow: task ids are made from the JSON of values, and must not change."""
    for name, values in columns.items():
        found = Values(pa.array(values, SCALARS[name][1]))
        assert found.json.to_pylist() == [to_json(value) for value in found.python]
        assert shown(found) == texts_of(found.python)


INSTANT = pa.timestamp("us", tz="Europe/Berlin")
#: Arrow arrays of one value, its JSON, and its repr.
WRITTEN: dict[str, tuple[pa.Array, str, str]] = {
    "whole": (pa.array([-7], pa.int16()), "-7", "-7"),
    "boolean": (pa.array([True]), "true", "True"),
    "null": (pa.array([None], pa.decimal128(5, 2)), "null", "None"),
    "no boolean": (pa.array([None], pa.bool_()), "null", "None"),
    "double": (pa.array([1e16]), "1e+16", "1e+16"),
    "whole double": (pa.array([3.0]), "3.0", "3.0"),
    "negative zero": (pa.array([-0.0]), "-0.0", "-0.0"),
    "small double": (pa.array([4.1e-05]), "4.1e-05", "4.1e-05"),
    "no number": (pa.array([math.nan]), "NaN", "nan"),
    "infinity": (pa.array([-math.inf]), "-Infinity", "-inf"),
    "small decimal": (
        pa.array([Decimal("1E-9")], pa.decimal128(12, 9)),
        '{"__type__": "decimal", "__value__": "1E-9"}',
        "Decimal('1E-9')",
    ),
    "decimal": (
        pa.array([Decimal("-1.50")], pa.decimal128(12, 2)),
        '{"__type__": "decimal", "__value__": "-1.50"}',
        "Decimal('-1.50')",
    ),
    "date": (
        pa.array([date(33, 10, 2)]),
        '{"__type__": "date", "__value__": "0033-10-02"}',
        "datetime.date(33, 10, 2)",
    ),
    "whole minute": (
        pa.array([datetime(2026, 1, 2, 0, 0, tzinfo=UTC)], INSTANT),
        '{"__type__": "datetime", "__value__": "2026-01-02T00:00:00+00:00"}',
        "datetime.datetime(2026, 1, 2, 0, 0, tzinfo=datetime.timezone.utc)",
    ),
    "whole second": (
        pa.array([datetime(2026, 11, 22, 10, 0, 5)], pa.timestamp("us")),
        '{"__type__": "datetime", "__value__": "2026-11-22T10:00:05"}',
        "datetime.datetime(2026, 11, 22, 10, 0, 5)",
    ),
    "whole hour without a zone": (
        pa.array([datetime(2026, 11, 22, 20, 0)], pa.timestamp("us")),
        '{"__type__": "datetime", "__value__": "2026-11-22T20:00:00"}',
        "datetime.datetime(2026, 11, 22, 20, 0)",
    ),
    "fraction": (
        pa.array([datetime(2026, 11, 22, 0, 30, 0, 90, tzinfo=UTC)], INSTANT),
        '{"__type__": "datetime", "__value__": "2026-11-22T00:30:00.000090+00:00"}',
        "datetime.datetime(2026, 11, 22, 0, 30, 0, 90, tzinfo=datetime.timezone.utc)",
    ),
    "round fraction": (
        pa.array([datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC)], INSTANT),
        '{"__type__": "datetime", "__value__": "1969-12-31T23:59:59.500000+00:00"}',
        "datetime.datetime(1969, 12, 31, 23, 59, 59, 500000, tzinfo=datetime.timezone.utc)",
    ),
}


@pytest.mark.parametrize(("array", "as_json", "as_repr"), WRITTEN.values(), ids=WRITTEN)
def test_the_texts_of_a_value_never_change(array: pa.Array, as_json: str, as_repr: str) -> None:
    """The JSON of a value, of which ids are made, and the repr that Celery shows."""
    assert Values(array).json.to_pylist() == [as_json]
    assert shown(Values(array)) == [as_repr]


@MANY
@given(st.dictionaries(TEXTS.filter(lambda name: name not in ("args", "task")), TEXTS, min_size=1, max_size=5))
def test_columns_may_have_any_name(columns: dict[str, str]) -> None:
    """Names of columns with quotes, percent signs and the like are keyword arguments too."""
    check(
        batch_of(**{f"{name}_": [each] for name, each in columns.items()}),
        [()],
        [{f"{n}_": columns[n] for n in columns}],
    )


@MANY
@given(st.lists(JSONS, max_size=4), st.dictionaries(TEXTS, JSONS, max_size=4))
def test_arguments_may_be_json(args: list[Any], kwargs: dict[str, Any]) -> None:
    """Arguments as JSON text arrive as what they say, and are shown so."""
    check(batch_of(args=[json.dumps(args)], kwargs=[json.dumps(kwargs)]), [args], [kwargs])


@MANY
@given(st.lists(st.lists(st.fixed_dictionaries({"a": st.none() | TEXTS, "b": st.lists(st.floats())})), min_size=1))
def test_nested_columns_are_shown_to_their_depth(rows: list[Any]) -> None:
    """Arrays and structs within each other arrive whole, and are shown as deep as Celery shows them."""
    kind = pa.list_(pa.struct([("a", pa.string()), ("b", pa.list_(pa.float64()))]))
    batch = batch_of(id=list(range(len(rows))), rows=pa.array(rows, kind))
    check(batch, [()] * len(rows), batch.to_pylist())


@pytest.mark.parametrize("text", ["x", "'", "\\", "é", '"', "'" * 2 + "x"])
@pytest.mark.parametrize("length", [*range(1000, 1030), 2000, 5000])
def test_what_is_too_long_is_cut_as_by_celery(text: str, length: int) -> None:
    """Around the length at which Celery cuts, and beyond, columns, structs and JSON are cut where Celery cuts."""
    long = (text * length)[:length]
    for kwargs in ({"a": long}, {"a": long, "b": 1}, {"a": 1, "b": long, "c": "y"}, {long: "x"}):
        check(batch_of(**{name: [each] for name, each in kwargs.items()}), [()], [kwargs])
        check(batch_of(kwargs=[json.dumps(kwargs)]), [()], [kwargs])
    check(batch_of(args=[[long, long]]), [[long, long]], [{}])


@pytest.mark.parametrize("count", [90, 100, 101, 102, 110, 300])
def test_many_columns_are_cut_as_by_celery(count: int) -> None:
    """Many short arguments are cut between each other where Celery cuts them."""
    kwargs: dict[str, Any] = {f"n{at:03}": at if at % 2 else str(at) for at in range(count)}
    check(batch_of(**{name: [each] for name, each in kwargs.items()}), [()], [kwargs])


def test_short_rows_beside_a_long_one_are_whole() -> None:
    """In a batch with one row that is cut, the others are shown as they are."""
    texts = ["a", "b" * 3000, "c'"]
    check(batch_of(t=texts, n=[1, 2, 3]), [()] * 3, [{"t": each, "n": n} for n, each in enumerate(texts, 1)])


FIVE_US = datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC)
#: Spark takes zones that Python does not have.
UNKNOWN_ZONE = pa.struct([pa.field("at", pa.timestamp("us", "UTC+5"), nullable=False), ("wall", pa.timestamp("us"))])
#: Arrow arrays of one value, and the Python value that a task gets.
ARRIVING: dict[str, tuple[pa.Array, Any]] = {
    "first instant": (
        pa.array([datetime(1, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        datetime(1, 1, 1, tzinfo=UTC),
    ),
    "last instant": (
        pa.array([datetime.max.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
        datetime.max.replace(tzinfo=UTC),
    ),
    "first local": (pa.array([datetime.min], pa.timestamp("us")), datetime.min),
    "last local": (pa.array([datetime.max], pa.timestamp("us")), datetime.max),
    "instant of another zone": (
        pa.array([datetime(2024, 7, 1, tzinfo=UTC)], pa.timestamp("us", "Europe/Berlin")),
        datetime(2024, 7, 1, tzinfo=UTC),
    ),
    "instant in s": (pa.array([5], pa.timestamp("s", "UTC")), datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)),
    "instants in a struct": (
        pa.array([{"at": datetime(2024, 7, 1, tzinfo=UTC)}], pa.struct([("at", pa.timestamp("us", "Europe/Berlin"))])),
        {"at": datetime(2024, 7, 1, tzinfo=UTC)},
    ),
    "instants in a map": (
        pa.array([[("at", datetime(2024, 7, 1, tzinfo=UTC))]], pa.map_(pa.string(), pa.timestamp("us", "Asia/Tokyo"))),
        {"at": datetime(2024, 7, 1, tzinfo=UTC)},
    ),
    "instant of a zone that Python does not have": (pa.array([5], pa.timestamp("us", "PST")), FIVE_US),
    "instants of such a zone in a map": (
        pa.array([[("at", 5), ("no", None)]], pa.map_(pa.string(), pa.timestamp("us", "GMT+5"))),
        {"at": FIVE_US, "no": None},
    ),
    "instants of such a zone in a struct in a large array": (
        pa.array([[{"at": 5, "wall": 5}, None]], pa.large_list(UNKNOWN_ZONE)),
        [{"at": FIVE_US, "wall": FIVE_US.replace(tzinfo=None)}, None],
    ),
    "local times in an array": (
        pa.array([[datetime(2024, 7, 1)]], pa.list_(pa.timestamp("us"))),
        [datetime(2024, 7, 1)],
    ),
    "first date": (pa.array([date.min]), date.min),
    "last date": (pa.array([date.max]), date.max),
    "decimal": (pa.array([Decimal("-0.00")], pa.decimal128(5, 2)), Decimal("-0.00").copy_abs()),
    "long decimal": (pa.array([Decimal("9" * 38)], pa.decimal128(38, 0)), Decimal("9" * 38)),
    "bytes of text": (pa.array(["ü".encode()]), "ü".encode()),
    "bytes": (pa.array([b"\xff\xfe"]), b"\xff\xfe"),
    "no bytes": (pa.array([b""]), b""),
    "large bytes": (pa.array([b"\xff"], pa.large_binary()), b"\xff"),
    "large text": (pa.array(["ü"], pa.large_string()), "ü"),
    "large array": (pa.array([[1]], pa.large_list(pa.int8())), [1]),
    "small numbers": (pa.array([-128], pa.int8()), -128),
    "single precision": (pa.array([0.1], pa.float32()), 0.10000000149011612),
    "no type": (pa.nulls(1), None),
    "map": (pa.array([[("a", None), ("b", [1])]], pa.map_(pa.string(), pa.list_(pa.int64()))), {"a": None, "b": [1]}),
    "no map": (pa.array([[]], pa.map_(pa.string(), pa.int64())), {}),
    "a struct of NULLs": (pa.array([{"a": None}], pa.struct([("a", pa.int64())])), {"a": None}),
}


@pytest.mark.parametrize(("array", "value"), ARRIVING.values(), ids=ARRIVING)
def test_a_value_arrives_as_celery_brings_it(array: pa.Array, value: Any) -> None:
    """A task gets the Python value, of its type, that it gets from ``apply_async`` with JSON."""
    check(batch_of(id=[1], a=array), [()], [{"id": 1, "a": value}])
    named = pa.StructArray.from_arrays([array], names=["a"])
    check(batch_of(kwargs=named), [()], [{"a": value}])
    check(batch_of(args=pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), array)), [[value]], [{}])


@pytest.mark.parametrize("hour_utc", [0, 1, 2])
def test_nested_instants_keep_their_moment_when_clocks_change(hour_utc: int) -> None:
    """Within arrays too, the hour that a zone has twice is told apart."""
    at = datetime(2024, 10, 27, hour_utc, 30, tzinfo=UTC)
    kind = pa.list_(pa.timestamp("us", tz="Europe/Berlin"))
    assert Values(pa.array([[at.astimezone(ZoneInfo("Europe/Berlin"))]], kind)).python == [[at]]


@pytest.mark.parametrize("text", ["12345678123456781234567812345678", "{12345678-1234-5678-1234-567812345678}"])
def test_uuids_arrive_as_uuids(text: str) -> None:
    """Texts, in any layout that ``uuid.UUID`` takes, and bytes of a UUID column are UUIDs for the task."""
    value = UUID(text)
    batch = batch_of(a=[text, None], b=[value.bytes, None], c=pa.array([value.bytes, None], pa.large_binary()))
    check(batch, [()] * 2, [{"a": value, "b": value, "c": value}, dict.fromkeys("abc")], uuid_columns="a,b,c")


def test_arguments_that_are_null_are_none() -> None:
    """NULL in args or kwargs is no argument at all, and in a keyword argument it is None."""
    batch = batch_of(args=pa.array([None], pa.list_(pa.int64())), kwargs=pa.array([None], pa.string()))
    check(batch, [()], [{}])
    check(batch_of(a=pa.array([None], pa.int64()), b=["x"]), [()], [{"a": None, "b": "x"}])


@pytest.mark.parametrize("zone", ["America/New_York", "PST", "GMT+5"])
def test_the_moment_of_a_time_is_the_same_in_all_columns(zone: str) -> None:
    """A due time, an expiry and an argument of the same instant are the same instant in the message."""
    at = datetime(2044, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    column = pa.array([at], pa.timestamp("us", "UTC")).cast(pa.timestamp("us", zone))
    offer = sole(made_of(batch_of(eta=column, expires=column, at=column)))[1]
    message = json.loads(offer.body)
    assert datetime.fromisoformat(message["headers"]["eta"]) == at
    assert datetime.fromisoformat(message["headers"]["expires"]) == at
    assert arguments_in(message)[1]["at"] == at
    assert float(offer.due) == (at - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1)


def test_bytes_that_celery_cuts_off_are_cut_off() -> None:
    """Celery counts the bytes of a value and not its characters, so a shorter text may be cut off, too."""
    value = "ü" * 600
    message = json.loads(sole(made_of(batch_of(data=pa.array([value.encode()], pa.binary()))))[1].body)
    assert message["headers"]["kwargsrepr"] == saferepr({"data": value.encode()}, REPR_LENGTH) != str({"data": value})
    assert "..." in message["headers"]["kwargsrepr"]
