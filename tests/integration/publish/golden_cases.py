"""Calls whose messages are those of ``apply_async``, byte for byte, however they are published."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from celery import Celery, signature
from kombu import Exchange, Queue

from celery_ext import Call, install
from celery_ext.demo.private_redis import PrivateRedis
from tests.support.workers.harness import TRANSPORT

NOW = datetime(2044, 5, 6, 7, 8, 9, 123_456, tzinfo=UTC)
ETA = datetime(2044, 5, 6, 8, 0, 0, 654_321, tzinfo=UTC)
NONE: Mapping[str, Any] = MappingProxyType({})


class Case(NamedTuple):
    """A call, options that all calls share, settings of the app, and options of the task."""

    call: Call = Call()
    options: Mapping[str, Any] = NONE
    conf: Mapping[str, Any] = NONE
    of_task: Mapping[str, Any] = NONE

    @property
    def is_relative(self) -> bool:
        """Whether each call has an eta of its own, but for clocks that stand still, and a random delivery tag."""
        return self.call.countdown is not None or not {"countdown", "delay_level"}.isdisjoint(self.options)


class Level(IntEnum):
    LOW = 1


class Text(str):
    __slots__ = ()


LONG = "it's " * 300
DEEP = {"a": [{"b": [{"c": [1, (2,)]}]}], "s": "x" * 40}
ARGUMENTS: list[Any] = [
    (),
    (1,),
    ('O\'Brien \\ "x" ü 😀 \n\x00 \ud800',),
    (1, -2.5, 1e300, True, False, None, 10**30, Decimal("12.50")),
    (float("nan"), float("inf")),
    # What stands for other things while messages are made.
    ("delayq-delivery-tag-not-yet-known-00", "%s", "delayq-slot-id"),
    (Level.LOW, Text("it's")),
    (NOW, NOW.replace(tzinfo=None), date(2024, 2, 29), UUID(int=5)),
    (b"abc", b"\xff\x00"),
    [1, "a"],
    [],
    (DEEP, [DEEP], [], {}, ()),
    (DEEP, DEEP),
    *(("x" * length, 1) for length in (1014, 1015, 1016, 1017, 1018, 1019, 1021, 1030)),
    *(("x" * length,) for length in (1016, 1017, 1018, 1019, 1020, 1021)),
    (LONG, 1, LONG),
    tuple(range(1000)),
]
QUEUES = [Queue("celery", Exchange("celery")), Queue("fast", Exchange("fast"), queue_arguments={"x-expires": 90_000})]
#: What a task declares, of which any argument may make the key.
LIMITED = {"limit": ("account", "b")}

CASES = {
    "args and kwargs": Case(Call((1,), {"b": 2}, eta=ETA)),
    "no delay": Case(Call((1,))),
    "countdown": Case(Call(countdown=90.5)),
    "no countdown": Case(Call(countdown=0)),
    "a countdown that is past": Case(Call(countdown=-1e9)),
    "countdown of all": Case(Call(), {"countdown": 30}),
    "eta of all": Case(Call(), {"eta": ETA}),
    "eta on a second": Case(Call(eta=ETA.replace(microsecond=0))),
    "eta of another zone": Case(Call(eta=ETA.astimezone(timezone(timedelta(hours=-5, minutes=-30))))),
    "eta without a zone": Case(Call(eta=ETA.replace(tzinfo=None))),
    "eta as text": Case(Call(eta="2044-05-06T08:00:00.5Z")),
    "eta as no time": Case(Call(eta="then \"'")),
    "eta in the past": Case(Call(eta=NOW - timedelta(days=9999))),
    "queue": Case(Call(eta=ETA), {"queue": "of orders %s"}),
    "queue of the task": Case(Call(eta=ETA), {}, {}, {"queue": "of_task"}),
    "queue in place of the task's": Case(Call(eta=ETA), {"queue": "mine"}, {}, {"queue": "of_task"}),
    "default queue": Case(Call(eta=ETA), {}, {"task_default_queue": "main"}),
    "queue that expires": Case(Call(eta=ETA), {"queue": "fast"}, {"task_queues": QUEUES}),
    "queue that expires, now": Case(Call(), {"queue": "fast"}, {"task_queues": QUEUES}),
    "routes": Case(Call(eta=ETA), {}, {"task_routes": {"bulk.*": {"queue": "routed", "priority": 4}}}),
    **{f"priority {each}": Case(Call(eta=ETA), {"priority": each}) for each in (0, 3, 9, 12, -1)},
    "priority, now": Case(Call(), {"priority": 5}),
    "priority of the task": Case(Call(eta=ETA), {}, {}, {"priority": 3}),
    "default priority": Case(Call(eta=ETA), {}, {"task_default_priority": 5}),
    "expires in s": Case(Call(eta=ETA), {"expires": 30}),
    "expires in parts of s": Case(Call(eta=ETA), {"expires": 30.25}),
    "expires in the past": Case(Call(eta=ETA), {"expires": -5}),
    "expires at a time": Case(Call(eta=ETA), {"expires": ETA}),
    "expires at a time without a zone": Case(Call(eta=ETA), {"expires": ETA.replace(tzinfo=None)}),
    "expires as text": Case(Call(eta=ETA), {"expires": ETA.isoformat()}),
    "expires of the task": Case(Call(eta=ETA), {}, {}, {"expires": 45}),
    "no expires in place of the task's": Case(Call(eta=ETA), {"expires": None}, {}, {"expires": 45}),
    "limits": Case(Call(eta=ETA), {"time_limit": 30, "soft_time_limit": 2.5}),
    "limits of the task": Case(Call(eta=ETA), {}, {}, {"time_limit": 40, "soft_time_limit": 30}),
    "ignore_result": Case(Call(eta=ETA), {"ignore_result": True}),
    "ignore_result of the task": Case(Call(eta=ETA), {}, {}, {"ignore_result": True}),
    "ignore_result in place of the task's": Case(Call(eta=ETA), {"ignore_result": False}, {}, {"ignore_result": True}),
    "headers": Case(Call(eta=ETA), {"headers": {"x": [1, "%s"], "y": None}}),
    "headers like slots": Case(Call(eta=ETA), {"headers": {"x": "delayq-slot-id", "delayq-slot-headers": None}}),
    "limit": Case(Call((1,), limit="account:ü,7%")),
    "limit of all": Case(Call(eta=ETA), {"limit": "account:7", "headers": {"x": 1}}),
    "limit of a call in place of that of all": Case(Call(eta=ETA, limit="account:7"), {"priority": 3}, {}, LIMITED),
    "limit of the task": Case(Call(countdown=30), {}, {}, {"limit": "stripe"}),
    "limit of the task's arguments": Case(
        Call(kwargs={"b": 'O\'Brien "ü"'}, eta=ETA), {"headers": {"x": 1}}, {}, LIMITED
    ),
    "limit in the headers": Case(Call(eta=ETA), {"headers": {"delayq_limit": "a:b"}}, {}, LIMITED),
    "no limit in place of the task's": Case(Call(eta=ETA, limit=""), {}, {}, LIMITED),
    "shadow": Case(Call(eta=ETA), {"shadow": "shown as"}),
    "link": Case(Call(eta=ETA), {"link": signature("bulk.next", (1,))}),
    "link_error": Case(Call(eta=ETA), {"link_error": [signature("bulk.next"), signature("bulk.other")]}),
    "ids of others": Case(Call(eta=ETA), {"root_id": "r", "parent_id": "p", "group_id": "g"}),
    "reply_to": Case(Call(eta=ETA), {"reply_to": "there"}),
    "argsrepr": Case(Call((1,), {"b": 2}, eta=ETA), {"argsrepr": "(***)", "kwargsrepr": ""}),
    "stamps": Case(Call(eta=ETA), {"stamped_headers": ["s"], "s": "x"}),
    "another property": Case(Call(eta=ETA), {"app_id": "me"}),
    "delivery_mode": Case(Call(eta=ETA), {"delivery_mode": 1}),
    "delay_chain": Case(Call(eta=ETA), {"delay_chain": "1m,1h"}),
    "delay_level": Case(Call(), {"delay_level": 3}),
    **{
        f"serializer {each}": Case(Call((1, "ü"), {"a": b"x"}, eta=ETA), {"serializer": each})
        for each in ("json", "pickle", "yaml", "msgpack")
    },
    **{
        f"compression {each}": Case(Call((LONG,), eta=ETA), {"compression": each}) for each in ("zlib", "bzip2", "lzma")
    },
    "serializer of the app": Case(Call((1,), eta=ETA), {}, {"task_serializer": "yaml"}),
    "serializer of the task": Case(Call((1,), eta=ETA), {}, {}, {"serializer": "yaml", "compression": "zlib"}),
    "time zone": Case(Call(countdown=60), {"expires": 90}, {"timezone": "Europe/Berlin"}),
    "local time": Case(Call(countdown=60), {}, {"timezone": "America/New_York", "enable_utc": False}),
    "levels of the repr": Case(Call((DEEP,), eta=ETA), {}, {"task_repr_maxlevels": 1}),
    "any levels of the repr": Case(Call((DEEP, 1), {"a": 1}, eta=ETA), {}, {"task_repr_maxlevels": 0}),
}


#: Keys of declared queues, of what send_many needs to send a page again, and of what a process notes only once.
_TAG = re.compile(r'"delivery_tag": "[0-9a-f-]{36}"')
_BESIDE = ("_kombu.", "{delayq}:chains")


def record(*args: Any, **kwargs: Any) -> None:
    """Takes anything."""


def app_of(server: PrivateRedis, case: Case) -> Celery:
    app = Celery("golden", broker=server.url, set_as_current=False)
    app.conf.update(broker_transport=TRANSPORT, **case.conf)
    app.now = lambda: NOW.astimezone(app.timezone)
    install(app)
    return app


def sent(server: PrivateRedis, app: Celery, send: Callable[[], object], *, is_relative: bool = False) -> dict[str, Any]:
    """Returns all that is in Redis once something was sent; of messages in a list without delivery tag and time.

    With ``is_relative`` no message has its delivery tag.
    """
    client = server.client()
    client.flushall()
    send()
    found: dict[str, Any] = {}
    for key in sorted(key for key in client.scan_iter() if not (key.startswith(_BESIDE) or ":sender:" in key)):
        kind = client.type(key)
        if kind == "zset":
            found[key] = client.zrange(key, 0, -1, withscores=True)
        elif kind == "hash":
            found[key] = client.hgetall(key)
            if is_relative:
                found[key] = {name: _TAG.sub("", value) for name, value in found[key].items()}
        elif kind == "set":
            found[key] = client.smembers(key)
        elif kind == "list":
            messages = [json.loads(each) for each in client.lrange(key, 0, -1)]
            own = [{"delivery_tag": "", "timestamp": "timestamp" in each["properties"]} for each in messages]
            found[key] = [
                {**each, "properties": each["properties"] | masked} for each, masked in zip(messages, own, strict=True)
            ]
        found[key, "expires"] = client.pttl(key) > 0
    assert found
    return found
