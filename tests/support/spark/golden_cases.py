"""Rows that use every column and option of a task, each with the call of Celery that means the same."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

#: When the job begins, and when Celery is called.
NOW = datetime(2044, 5, 6, 7, 8, 9, 123_000, tzinfo=UTC)
NOW_MS = NOW.timestamp() * 1000
ETA = datetime(2044, 5, 6, 8, 0, 0, 654_321, tzinfo=UTC)
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Case(NamedTuple):
    """A row, and the call that means the same."""

    call: Mapping[str, Any]
    columns: Mapping[str, Any] = NOTHING
    options: Mapping[str, str] = NOTHING


def utc(at: datetime) -> pa.Array:
    return pa.array([at], pa.timestamp("us", tz="UTC"))


def struct(**fields: Any) -> pa.Array:
    return pa.array([fields])


def mapping(**entries: Any) -> pa.Array:
    return pa.array([list(entries.items())], pa.map_(pa.string(), pa.array(list(entries.values())).type))


VALUES: dict[str, Any] = {
    "order": 7,
    "name": 'O\'Brien \\ "x" ü 😀',
    "none": None,
    "yes": True,
    "share": 0.1,
    "price": Decimal("12.50"),
    "day": date(2024, 2, 29),
    "at": datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
    "local": datetime(2024, 2, 29, 12, 30, 0, 5),
    "raw": b"\xff\x00",
    "text": b"abc",
    "rows": [{"a": [1, None]}, {"a": []}],
}

CASES = {
    "nothing": Case({}),
    "task": Case({"name": "other.task"}, {"task": ["other.task"]}),
    "args in an array": Case({"args": [1, 2]}, {"args": [[1, 2]]}),
    "args as JSON": Case({"args": [1, "a", None, {"b": [1.5]}]}, {"args": ['[1, "a", null, {"b": [1.5]}]']}),
    "args without any": Case({"args": []}, {"args": pa.array([[]], pa.list_(pa.int64()))}),
    "args NULL": Case({}, {"args": pa.array([None], pa.list_(pa.int64()))}),
    "kwargs in columns": Case({"kwargs": VALUES}, {name: [value] for name, value in VALUES.items()}),
    "kwargs in a struct": Case({"kwargs": VALUES}, {"kwargs": struct(**VALUES)}),
    "kwargs in a map": Case({"kwargs": {"a": 1, "b": 2}}, {"kwargs": mapping(a=1, b=2)}),
    "kwargs as JSON": Case({"kwargs": {"a": [1, {"b": None}]}}, {"kwargs": ['{"a": [1, {"b": null}]}']}),
    "kwargs NULL": Case({}, {"kwargs": pa.array([None], pa.string())}),
    "args and kwargs": Case({"args": ["x"], "kwargs": {"a": 1.0}}, {"args": [["x"]], "kwargs": ['{"a": 1.0}']}),
    "a long text": Case({"kwargs": {"a": "é" * 2000, "b": 1}}, {"a": ["é" * 2000], "b": [1]}),
    "UUIDs": Case(
        {"kwargs": {"a": UUID(int=5), "b": UUID(int=6)}},
        {"a": [str(UUID(int=5))], "b": [UUID(int=6).bytes]},
        {"uuid_columns": "a,b"},
    ),
    "eta": Case({"eta": ETA}, {"eta": utc(ETA)}),
    "eta on a second": Case({"eta": ETA.replace(microsecond=0)}, {"eta": utc(ETA.replace(microsecond=0))}),
    "eta without a zone": Case({"eta": ETA}, {"eta": pa.array([ETA.replace(tzinfo=None)], pa.timestamp("us"))}),
    "eta in the past": Case({"eta": NOW - timedelta(days=9999)}, {"eta": utc(NOW - timedelta(days=9999))}),
    "eta NULL": Case({}, {"eta": pa.array([None], pa.timestamp("us", tz="UTC"))}),
    "eta of no type": Case({}, {"eta": pa.nulls(1)}),
    "countdown": Case({"countdown": 90.5}, {"countdown": [90.5]}),
    "countdown as an option": Case({"countdown": 5400}, {}, {"countdown": "1h30m"}),
    "countdown NULL": Case({"countdown": 60}, {"countdown": pa.array([None], pa.float64())}, {"countdown": "60"}),
    "no countdown": Case({"countdown": 0}, {"countdown": [0]}),
    "no countdown as an option": Case({"countdown": 0}, {}, {"countdown": "0"}),
    "no countdown in place of the option": Case({"countdown": 0}, {"countdown": [0]}, {"countdown": "60"}),
    "a countdown that has passed": Case({"countdown": -5}, {"countdown": [-5]}),
    "delay_level": Case({"countdown": 10}, {"delay_level": [3]}),
    "delay_level as an option": Case({"countdown": 7200}, {}, {"delay_level": "99"}),
    "delay_level 0": Case({}, {"delay_level": [0]}, {"delay_level": "3"}),
    "delay_level NULL": Case({"countdown": 5}, {"delay_level": pa.array([None], pa.int64())}, {"delay_level": "2"}),
    "delay_level of a job's own": Case({"countdown": 3600}, {"delay_level": [2]}, {"delayq_levels": "7m 1h"}),
    "expires in s": Case({"expires": 30}, {"expires": [30]}),
    "expires in parts of s": Case({"expires": 30.25}, {"expires": [30.25]}),
    "expires before now": Case({"expires": -30}, {"expires": [-30]}),
    "expires in place of the option": Case({"expires": 1}, {"expires": [1]}, {"expires": "10s"}),
    "expires at a time": Case({"expires": ETA}, {"expires": utc(ETA)}),
    "expires at a past time": Case({"expires": NOW - timedelta(1)}, {"expires": utc(NOW - timedelta(1))}),
    "expires as an option": Case({"expires": 600}, {}, {"expires": "10m"}),
    "expires as an option with a time": Case({"expires": ETA}, {}, {"expires": ETA.isoformat()}),
    "expires NULL": Case({}, {"expires": pa.array([None], pa.float64())}),
    "expires NULL with the option": Case(
        {"expires": 10}, {"expires": pa.array([None], pa.float64())}, {"expires": "10s"}
    ),
    "eta and expires": Case({"eta": ETA, "expires": 7200}, {"eta": utc(ETA), "expires": [7200]}),
    "queue": Case({"queue": "orders"}, {"queue": ["orders"]}),
    "queue as an option": Case({"queue": "of orders %s"}, {}, {"queue": "of orders %s"}),
    "queue NULL": Case({"queue": "orders"}, {"queue": pa.array([None], pa.string())}, {"queue": "orders"}),
    **{f"priority {number}": Case({"priority": number}, {"priority": [number]}) for number in range(10)},
    "priority as an option": Case({"priority": 6}, {}, {"priority": "6"}),
    "headers in a map": Case({"headers": {"x": "1", "y": "%s"}}, {"headers": mapping(x="1", y="%s")}),
    "headers in a struct": Case({"headers": {"x": 1, "y": None}}, {"headers": struct(x=1, y=None)}),
    "headers as JSON": Case({"headers": {"x": {"y": [1]}}}, {"headers": ['{"x": {"y": [1]}}']}),
    "headers as an option": Case({"headers": {"x": [1, "ü"]}}, {}, {"headers": '{"x": [1, "ü"]}'}),
    "limit": Case({"headers": {"delayq_limit": "account:a%20b"}}, {"limit": ["account:a b"]}),
    "limit as an option": Case(
        {"headers": {"x": 1, "delayq_limit": "a:7"}}, {"headers": ['{"x": 1}']}, {"limit": "a:7"}
    ),
    "headers without any": Case({"headers": {}}, {"headers": ["{}"]}),
    "root_id": Case({"root_id": "r\"'%"}, {"root_id": ["r\"'%"]}),
    "root_id NULL": Case({}, {"root_id": pa.array([None], pa.string())}),
    "root_id empty": Case({"root_id": ""}, {"root_id": [""]}),
    "parent_id": Case({"parent_id": "p"}, {"parent_id": ["p"]}),
    "group_id": Case({"group_id": "g"}, {"group_id": ["g"]}),
    "task_id": Case({"task_id": "ü\"' %s"}, {"task_id": ["ü\"' %s"]}),
    "time_limit": Case({"time_limit": 30}, {"time_limit": [30]}),
    "soft_time_limit": Case({"soft_time_limit": 2.5}, {"soft_time_limit": [2.5]}),
    "limits as options": Case(
        {"time_limit": 60, "soft_time_limit": 50}, {}, {"time_limit": "1m", "soft_time_limit": "50s"}
    ),
    "delay_chain": Case({"delay_chain": "4m,10m"}, {"delay_chain": ["4m,10m"]}, {"delay_chain": "1h"}),
    "delay_chain as an option": Case({"delay_chain": "4m,10m"}, {"delay_chain": [None]}, {"delay_chain": "4m,10m"}),
    "ignore_result": Case({"ignore_result": True}, {"ignore_result": [True]}),
    "ignore_result not": Case({"ignore_result": False}, {"ignore_result": [False]}, {"ignore_result": "true"}),
    "ignore_result as an option": Case({"ignore_result": True}, {}, {"ignore_result": "true"}),
    "all at once": Case(
        {
            "args": [1],
            "kwargs": {"k": "v"},
            "eta": ETA,
            "expires": 99999,
            "queue": "q",
            "priority": 3,
            "headers": {"h": "1"},
            "root_id": "r",
            "parent_id": "p",
            "group_id": "g",
            "time_limit": 9,
            "soft_time_limit": 8,
            "ignore_result": True,
            "task_id": "t",
        },
        {
            "args": [[1]],
            "kwargs": struct(k="v"),
            "eta": utc(ETA),
            "expires": [99999],
            "queue": ["q"],
            "priority": [3],
            "headers": mapping(h="1"),
            "root_id": ["r"],
            "parent_id": ["p"],
            "group_id": ["g"],
            "time_limit": [9],
            "soft_time_limit": [8],
            "ignore_result": [True],
            "task_id": ["t"],
        },
    ),
}
