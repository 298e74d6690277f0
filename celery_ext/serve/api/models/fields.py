"""The types of single fields, with their bounds."""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

#: Longest time in s that a request may name; about 190 years. ``max_delay`` of the transport may allow less.
MAX_SECONDS = 6_000_000_000
#: Most tasks in a batch.
MAX_BATCH = 1_000
#: Longest names of tasks and queues, and longest task ids, in characters.
MAX_NAME, MAX_ID = 1_000, 500
#: Names of headers of a message: those of W3C's trace context, and names with a hyphen. Celery's own have none, so a
#: request cannot change what Celery or kombu-delayq read.
HEADER_NAME = r"^(traceparent|tracestate|baggage|[A-Za-z0-9_]+(-[A-Za-z0-9_]+)+)$"
_NOT_BLANK = r"\S"
#: What a text has to be that one of these patterns is for.
PATTERNS_IN_WORDS = {
    HEADER_NAME: "a header of a message is traceparent, tracestate or baggage, or has a hyphen in its name",
    _NOT_BLANK: "Expected a text that is not blank",
}
#: Delay chains as the document shows them; ``DelayChain.parse`` reads more.
_CHAIN = r"^[1-9][0-9]{0,2}(s|m|h)(\*[1-9])?(,[1-9][0-9]{0,2}(s|m|h)(\*[1-9])?){0,9}$"

TaskName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, examples=["shop.remind"])]
QueueName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, examples=["orders"])]
TaskId = Annotated[str, Meta(min_length=1, max_length=MAX_ID, examples=["5f0e5c7e-2f4b-4d8e-9d5c-0a1b2c3d4e5f"])]
#: A time in a request. It names its zone, so that nobody has to guess it.
Moment = Annotated[datetime, Meta(tz=True, description="RFC 3339, with a zone", examples=["2030-01-01T09:00:00+01:00"])]
Countdown = Annotated[float, Meta(ge=0, le=MAX_SECONDS, description="s from now")]
Lifetime = Annotated[float, Meta(gt=0, le=MAX_SECONDS, description="s from now")]
Priority = Annotated[int, Meta(ge=0, le=9)]
Limit = Annotated[int, Meta(ge=1, le=1_000, description="Most rows of an answer")]
CursorText = Annotated[str, Meta(max_length=6_000, description="The `cursor` of the answer before")]
Headers = dict[Annotated[str, Meta(pattern=HEADER_NAME, max_length=100)], Annotated[str, Meta(max_length=8_192)]]
ChainText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=10_000,
        description="How long each retry waits",
        examples=["4m,10m*2,1h"],
        extra_json_schema={"pattern": _CHAIN},
    ),
]

#: A text to search for.
Sought = Annotated[str, Meta(min_length=1, max_length=500, pattern=_NOT_BLANK)]

#: A time in an answer.
Iso = Annotated[
    str,
    Meta(description="UTC, with ms", extra_json_schema={"format": "date-time"}, examples=["2030-01-01T08:00:00.000Z"]),
]
Count = Annotated[int, Meta(ge=0)]


class Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A request. A field that nobody knows is an error: a slip must not pass in silence."""


def either(*fields: str) -> dict[str, Any]:
    """Returns the part of a schema that says: exactly one of these fields is given."""
    choices = []
    for name in fields:
        others = {other: {"type": "null"} for other in fields if other != name}
        choices.append({"required": [name], "properties": {name: {"not": {"type": "null"}}, **others}})
    return {"oneOf": choices}


class Answer(msgspec.Struct, kw_only=True):
    """An answer."""
