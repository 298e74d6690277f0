"""Messages of every form that Celery writes, and damaged ones."""

import json
from itertools import product

from tests.support.messages import ETA, ETA_AT, plain_message, task_message
from tests.support.messages import changed_message as task

FORMS = [
    task_message(
        (1, "ü"), kwargs={"k": [None]}, conf={"task_protocol": protocol, "task_serializer": serializer}, **more
    )
    for protocol, serializer, more in product(
        (1, 2),
        ("json", "yaml", "msgpack", "pickle"),
        ({}, {"compression": "gzip"}, {"eta": ETA_AT, "retries": 2}, {"link": None}),
    )
]
ODD = [
    *(
        b"",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[1]",
        b"5",
        b"null",
        b'{"a": 1}{"b": 2}',
        b'{"headers": {}}\n',
        b"}\n{",
    ),
    b'{"headers": {"task": "a"}}{"headers": {"task": "b"}}',
    b'{"headers": {"task": "a", "task": "b"}}',
    b'{"headers": {"task": "a\xff"}}',
    b'{"headers": {"task": "\\ud800"}}',
    b'{"headers": {"task": "a"}, "more": NaN}',
    b'{"more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    json.dumps(task(), indent=1).encode(),
    json.dumps(task()).encode("utf-16"),
    *(task(content) for content in (b"", b"no json", b"[]", b"{}", b"[1, 2, 3]", b"[[], {}]", b"[[], {}, {}, {}]")),
    *(
        task(content)
        for content in (b"[null, null, {}]", b" [ [1 , 2] , {} , {}] ", b"[[1], {}, {}", b"[[1], {}, {}]]")
    ),
    *(
        task(content)
        for content in (b'[["], {"], {"a": "], {"}, {}]', b"[[], {\xff}, {}]", "[[], {}, {}]".encode("utf-16"))
    ),
    task(b'[[], {"a": 1}, {"b": 2}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'),
    task(b'[[], {"a": }, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'),
    task(b'[[], {"a": "\n"}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'),
    task(b'[[], {"a": "\\n\\u00fc\\ud83d"}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'),
    task(b'[["x"], {"a": [[], {}]}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'),
    task(headers={"retries": "many", "task": 5, "id": 6}),
    task(headers={"retries": 2.0}),
    task(headers={"retries": -1}),
    task(headers={"retries": True}),
    task(headers={"task": None}),
    task(headers={"task": "", "eta": ""}),
    task(headers={"task": ["a"], "eta": {"b": 1}}),
    task(headers={"eta": 7}),
    task(b"x", headers={"compression": "application/x-gzip"}),
    task(b"x", headers={"compression": ["zlib"]}),
    task(b"\x00{", **{"content-type": "application/x-yaml"}),
    task(**{"content-encoding": "latin-1"}),
    task(**{"content-encoding": None}),
    task(**{"content-type": None}),
    task(**{"content-type": 5}),
    {**task(), "headers": 7, "properties": 8},
    {**task(), "headers": []},
    {**task(), "body": 12},
    {**task(), "body": "[[1], {}, {}]", "properties": {}},
    {**task(), "body": "é"},
    {**task(), "body": "abc"},
    plain_message({"id": "other", "retries": 7}, headers={"eta": ETA}, DelaySeconds=5),
    plain_message("text", headers={"id": "x"}),
]
MESSAGES = [message if isinstance(message, bytes) else json.dumps(message).encode() for message in (*FORMS, *ODD)]
