"""Options of the data source: what each takes, and what is said of the others."""

import dataclasses
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql.types import StructType

from celery_ext.spark.errors import InvalidSparkOption
from celery_ext.spark.options import ReadOptions, WriteOptions
from celery_ext.spark.source import CeleryDataSource

NAMES = {kind: [field.name for field in dataclasses.fields(kind)] for kind in (WriteOptions, ReadOptions)}
DURATIONS: dict[str, Any] = {
    "0": 0.0,
    "90": 90.0,
    "1.5": 1.5,
    "10m": 600.0,
    "1h30m": 5400.0,
    " 5s ": 5.0,
    "250ms": 0.25,
}
NO_DURATIONS = ["-1", "x", "", "5 m", "1e3", "inf", "nan", "200y", "9999999999999"]
TIMES = {
    "2030-01-31": datetime(2030, 1, 31, tzinfo=UTC),
    "2030-01-31T12:00:00": datetime(2030, 1, 31, 12, tzinfo=UTC),
    "2030-01-31T12:00:00Z": datetime(2030, 1, 31, 12, tzinfo=UTC),
    "2030-01-31T12:00:00+05:00": datetime(2030, 1, 31, 12, tzinfo=timezone(timedelta(hours=5))),
}
TEXTS, NO_TEXTS = {"a": "a", " a b,c ": " a b,c ", "%s": "%s"}, ["", " "]
LISTS, NO_LISTS = {"a": ("a",), " a , b ": ("a", "b")}, ["", ",", "a,", "a,,b"]
SWITCHES, NO_SWITCHES = {"true": True, "FALSE": False, " True ": True}, ["1", "yes", ""]
OBJECTS: dict[str, Any] = {"{}": {}, '{"a": [1]}': {"a": [1]}}
NO_OBJECTS = ["", "1", "[]", '"a"', "{", "null", "[" * 100_000]
VARIABLES, NO_VARIABLES = {"BROKER": "BROKER", " _a.b-1 ": "_a.b-1"}, ["", "a b", "redis://x", "$A", "A=b"]


def numbers(low: int, high: int) -> tuple[dict[str, Any], list[str]]:
    good = {str(low): low, f" {high} ": high, f"+{low}": low}
    return good, [str(low - 1), str(high + 1) if high < 2**53 else "9" * 19, "1.0", "x", "", "1e1", "0x1", "1_0", "٣"]


#: For each option the values that it takes, with what they mean, and those that it does not take.
VALUES: dict[tuple[type, str], tuple[dict[str, Any], list[str]]] = {
    **{
        (kind, name): case
        for kind in (WriteOptions, ReadOptions)
        for name, case in {
            "broker_url": ({"redis://a": "redis://a"}, NO_TEXTS),
            "broker_url_env": (VARIABLES, NO_VARIABLES),
            "broker_transport_options": (OBJECTS, NO_OBJECTS),
            "celery_app": (TEXTS, NO_TEXTS),
            "journal_url_env": (VARIABLES, NO_VARIABLES),
        }.items()
    },
    **{(WriteOptions, name): (TEXTS, NO_TEXTS) for name in ("task", "queue", "job_id", "dead_letter_queue")},
    **{(WriteOptions, name): (DURATIONS, NO_DURATIONS) for name in ("countdown", "spread", "write_timeout")},
    **{
        (WriteOptions, name): ({text: each for text, each in DURATIONS.items() if each}, [*NO_DURATIONS, "0", "0s"])
        for name in ("time_limit", "soft_time_limit", "job_ttl")
    },
    (WriteOptions, "priority"): numbers(0, 9),
    (WriteOptions, "delay_level"): numbers(0, 2**53),
    (WriteOptions, "delayq_levels"): ({"1s 5m": "1s 5m", "1s,2s": "1s,2s"}, ["", "x", "1 2", "5m 1"]),
    (WriteOptions, "delay_chain"): ({"4m,10m": "4m,10m", "1s*3": "1s*3"}, ["", "x", "4m,,x"]),
    (WriteOptions, "limit"): ({"account:7": "account:7", "a:b c": "a:b%20c", "": ""}, ["ü", ":7", "a b"]),
    (WriteOptions, "expires"): ({**DURATIONS, **TIMES}, [*NO_DURATIONS, "2030-13-01"]),
    (WriteOptions, "ignore_result"): (SWITCHES, NO_SWITCHES),
    (WriteOptions, "argsrepr"): (SWITCHES, NO_SWITCHES),
    (WriteOptions, "headers"): (OBJECTS, [*NO_OBJECTS, '{"id": 1}', '{"a": 1, "eta": null}']),
    (WriteOptions, "id_columns"): (LISTS, NO_LISTS),
    (WriteOptions, "uuid_columns"): (LISTS, NO_LISTS),
    (WriteOptions, "if_waiting"): ({"add": "add", " Keep ": "keep", "replace": "replace"}, ["", "skip"]),
    (WriteOptions, "on_committed"): ({"skip": "skip", " Fail ": "fail"}, ["", "raise"]),
    (WriteOptions, "max_rate"): (
        {"0": 0.0, "0.5": 0.5, "500": 500.0, "1e3": 1000.0},
        ["-1", "x", "", "nan", "inf", "1e10"],
    ),
    (WriteOptions, "max_queue_depth"): numbers(0, 2**53),
    (WriteOptions, "on_bad_row"): ({each: each for each in ("fail", "drop", "dead_letter")}, ["", "ignore"]),
    (WriteOptions, "chunk_size"): numbers(1, 1000),
    (WriteOptions, "chunk_bytes"): numbers(1, 10**8),
    (ReadOptions, "messages"): ({each: each for each in ("waiting", "ready", "dead_letters")}, ["", "dead"]),
    (ReadOptions, "queue"): (LISTS, NO_LISTS),
    (ReadOptions, "columns"): (LISTS, NO_LISTS),
    (ReadOptions, "due_after"): (TIMES, ["", "x", "12", "10m"]),
    (ReadOptions, "due_before"): (TIMES, ["", "x", "12", "10m"]),
    (ReadOptions, "page_size"): numbers(1, 5000),
    (ReadOptions, "partitions"): numbers(1, 10_000),
    (ReadOptions, "replica_url"): ({"redis://a": "redis://a"}, NO_TEXTS),
    (ReadOptions, "replica_url_env"): (VARIABLES, NO_VARIABLES),
}
KINDS: Any = pytest.mark.parametrize("kind", [WriteOptions, ReadOptions])


def test_the_tests_know_every_option() -> None:
    """Each option of both kinds has values here that it takes, and some that it does not."""
    assert VALUES.keys() == {(kind, name) for kind, names in NAMES.items() for name in names}
    assert all(good and bad for good, bad in VALUES.values())


@pytest.mark.parametrize(("kind", "name"), VALUES)
def test_an_option_takes_its_values(kind: Any, name: str) -> None:
    """A value is what it says, in any case of the name, as Spark hands names over in lower case."""
    for text, meaning in VALUES[kind, name][0].items():
        for written in (name, name.upper()):
            assert getattr(kind.parse({written: text}), name) == meaning
    assert getattr(kind.parse({}), name) == next(f.default for f in dataclasses.fields(kind) if f.name == name)


@pytest.mark.parametrize(("kind", "name"), VALUES)
def test_an_option_refuses_other_values(kind: Any, name: str) -> None:
    """The error names the option, and shows a value of any length briefly, unless it may have a password."""
    for text in VALUES[kind, name][1]:
        with pytest.raises(InvalidSparkOption) as caught:
            kind.parse({name: text})
        told = str(caught.value)
        assert told.startswith(f"wrong options for the data source celery: {name}")
        assert len(told) < 600
        if "url" in name or name == "broker_transport_options":
            assert not text.strip() or text in "{[1" or text not in told
        elif len(text) < 100:
            assert repr(text) in told


@KINDS
@pytest.mark.parametrize(
    ("written", "meant"),
    [("queu", "queue"), ("Broker-URL", "broker_url"), ("brokerurl", "broker_url"), ("celeryapp", "celery_app")],
)
def test_a_misspelt_option_names_the_nearest(kind: Any, written: str, meant: str) -> None:
    """An unknown name is refused with the name that may have been meant, and without the value."""
    with pytest.raises(InvalidSparkOption, match=rf"{written} is not an option \(did you mean {meant}\?\)") as caught:
        kind.parse({written: "s3cret"})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "foreign", "told"),
    [
        (
            ReadOptions,
            {"task": "t", "ID_columns": "a"},
            "task, ID_columns: options for writing tasks; .* cannot be read$",
        ),
        (
            WriteOptions,
            {"task": "t", "due_after": "x"},
            "due_after: options for reading what waits; .* cannot be written$",
        ),
    ],
)
def test_options_of_the_other_direction_are_told_as_such(kind: Any, foreign: dict[str, str], told: str) -> None:
    """A view for writing that is read, and one for reading that is written to, are named, and no other option is."""
    with pytest.raises(InvalidSparkOption, match=rf"^{told}"):
        kind.parse({"broker_url": "redis://a", "queue": "q", **foreign})


def test_an_option_of_nothing_like_it_is_refused() -> None:
    """A name that resembles none is refused without a guess."""
    with pytest.raises(InvalidSparkOption, match=r"frobnicate is not an option$"):
        WriteOptions.parse({"frobnicate": "1"})


def test_all_errors_are_told_at_once() -> None:
    """Whoever has made several mistakes reads of all of them in one error."""
    wrong = {"priority": "10", "spread": "x", "queu": "q", "frobnicate": "1", "task": "t"}
    with pytest.raises(InvalidSparkOption) as caught:
        WriteOptions.parse(wrong)
    told = str(caught.value)
    for part in ("priority='10' is not a whole number from 0 to 9", "spread", "queu is not an option", "frob"):
        assert part in told
    assert "task" not in told.partition(":")[2]


@KINDS
def test_options_of_spark_are_left_to_it(kind: Any) -> None:
    """What Spark itself puts among the options is no mistake of the user."""
    kind.parse(dict.fromkeys(("checkpointLocation", "queryName", "triggerInterval", "numPartitions"), "x"))


@KINDS
def test_each_option_says_what_it_is_for(kind: Any) -> None:
    """The documentation is made from the options, so each has a sentence of help."""
    for field in dataclasses.fields(kind):
        assert field.metadata["help"][0].isupper() or field.metadata["help"][0] == "`"
        assert field.metadata["help"].endswith(".")


def test_a_stream_of_what_waits_is_refused() -> None:
    """``readStream`` fails with words of the data source, which say what to do instead."""
    with pytest.raises(InvalidSparkOption, match=r"no readStream.*spark\.read\.format"):
        CeleryDataSource({}).streamReader(StructType())


@pytest.mark.parametrize(
    ("options", "overwrite", "told"),
    [
        ({"job_id": "nightly"}, False, "job_id is for batch jobs"),
        ({"on_committed": "fail"}, False, "on_committed=fail is for batch jobs"),
        ({}, True, "tasks are appended to queues, never overwritten"),
    ],
)
def test_what_a_stream_has_of_its_own_is_refused_as_an_option(
    options: dict[str, str], overwrite: bool, told: str
) -> None:
    """A stream names its jobs itself, skips what was committed, and only appends: ``complete`` mode overwrites."""
    source = CeleryDataSource({"broker_url": "redis://127.0.0.1:1/0", "task": "t", **options})
    with pytest.raises(InvalidSparkOption, match=told):
        source.streamWriter(StructType().add("id", "long"), overwrite)
