"""What consumers in other languages send and get, as JSON."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from celery_ext.delays.durations import MAX_S
from celery_ext.serve.leases import MOST

#: Longest wait of a take, and longest and shortest lease, in s.
LONGEST_WAIT_S, LONGEST_LEASE_S, SHORTEST_LEASE_S = 60.0, 3600.0, 1.0
_Tag = Annotated[str, Meta(pattern="^[1-9][0-9]{0,2}$", description="Tag of a message, as `take` gave it.")]


class TakeQuery(Struct, forbid_unknown_fields=True):
    """How many messages to take, for how long, and how long to wait for them."""

    wait: Annotated[str, Meta(description="How long to wait if there are none, up to 60s: `20s`, or `20`.")] = "0s"
    max: Annotated[int, Meta(ge=1, le=MOST, description="The most messages.")] = 1
    lease: Annotated[str, Meta(description="Length of the lease, 1s to 1h.")] = "60s"


class Tags(Struct, forbid_unknown_fields=True):
    """Which messages of a lease are meant."""

    tags: Annotated[list[_Tag], Meta(min_length=1, max_length=MOST)]


class Release(Struct, forbid_unknown_fields=True):
    """Which messages go back to their queue."""

    tags: Annotated[list[_Tag], Meta(min_length=1, max_length=MOST)]
    delay: (
        Annotated[float, Meta(gt=0, le=MAX_S, description="After how many s they come again; without it, at once.")]
        | None
    ) = None


class Extend(Struct, forbid_unknown_fields=True):
    """For how long a lease lasts, from now."""

    seconds: Annotated[float, Meta(ge=SHORTEST_LEASE_S, le=LONGEST_LEASE_S)]


class Lease(Struct):
    """A lease: what is not acknowledged before it ends goes back to its queue."""

    id: str
    ends: Annotated[str, Meta(description="By the clock of Redis, ISO 8601 in UTC.")]
    seconds: Annotated[float, Meta(description="How long it lasted when this answer was made.")]


class Delivery(Struct, omit_defaults=True):
    """A message. A task has `args`, `kwargs` and `embed`, a plain message `content`; one not decoded has `body`."""

    tag: str
    task: str | None
    id: str | None
    redelivered: bool
    delivery_count: Annotated[int, Meta(description="How often it was in the hands of a consumer that died.")]
    retries: int
    priority: int
    expires: str | None
    expired: Annotated[bool, Meta(description="Whether it expires in the past: a Celery worker would not run it.")]
    headers: dict[str, Any]
    reply_to: str | None
    content_type: str | None
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    embed: Annotated[dict[str, Any] | None, Meta(description="Callbacks, chain and chord of the task.")] = None
    content: Any = None
    content_encoding: str | None = None
    body: Annotated[str | None, Meta(description="The body in base64.")] = None


class Taken(Struct):
    """Messages in the order in which they were in their queue; no lease where there are none."""

    lease: Lease | None
    messages: list[Delivery]


class Acknowledged(Struct):
    """What is done, and what the lease held no more: it was acknowledged before, or has gone back to its queue."""

    acknowledged: list[str]
    missing: list[str]


class Released(Struct):
    """What has gone back now, and what the lease held no more."""

    released: list[str]
    missing: list[str]


class Extended(Struct):
    """The lease as it is now, and what it still holds."""

    lease: Lease
    held: list[str]
