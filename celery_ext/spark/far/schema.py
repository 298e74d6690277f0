"""The columns of the rows in the far tier."""

# The documentation is built without Spark: annotations are not evaluated.
from __future__ import annotations

import pyarrow as pa

_TEXT = pa.string()
_TIME = pa.timestamp("us", tz="UTC")
#: The columns. A task id that is a UUID is in ``uuid``, any other in ``id``. ``template`` numbers the templates in the
#: metadata of the file. ``args`` and ``kwargs`` are JSON, null when they are empty; a body that is not plain JSON is
#: ``body``. ``kwargsrepr`` is null when it is ``kwargs`` with other quotes. The others are null where Celery writes its
#: defaults.
SCHEMA = pa.schema(
    {
        "uuid": pa.binary(16),
        "id": _TEXT,
        "due": _TIME,
        "queue": _TEXT,
        "task": _TEXT,
        "priority": pa.int8(),
        "template": pa.int16(),
        "args": _TEXT,
        "kwargs": _TEXT,
        "body": pa.binary(),
        "argsrepr": _TEXT,
        "kwargsrepr": _TEXT,
        "expires": _TIME,
        "group_id": _TEXT,
        "root_id": _TEXT,
        "parent_id": _TEXT,
        "headers": _TEXT,
    }
)
#: Columns that are written with a dictionary: few values, repeated.
DICTIONARY = ("queue", "task", "priority", "template", "args", "argsrepr", "group_id", "parent_id", "headers")
#: Metadata of a file: its templates, and when its job began, µs since the epoch.
TEMPLATES, BASE = b"delayq.templates", b"delayq.base_us"
#: Rows in a row group. A cancel reads the ids of one group for an id, 256 KB.
GROUP_ROWS = 16_384
#: Tombstones: rows that are cancelled.
TOMBSTONE_SCHEMA = pa.schema({"manifest": _TEXT, "id": _TEXT})
