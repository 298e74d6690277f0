"""A big tenant and a small one beside each other, without limits by key and with them."""

import json
from time import monotonic, sleep, time
from typing import Any, ClassVar, NamedTuple

import redis

#: How many tasks each tenant sends, the big one first, and how long each takes, in s.
BIG, SMALL, TASK_S = 40, 3, 0.05
#: How long all of them may take, in s.
PATIENCE_S = 30.0


class Begin(NamedTuple):
    """A task that has begun.

    Attributes:
        tenant: Whose it is.
        number: Its number among those of its tenant.
        at: When it began, s since the epoch.
    """

    tenant: str
    number: int
    at: float


class Tenants:
    """Sends the tasks of both tenants twice, and tells for how long those of the small one have waited.

    Args:
        client: Where begins are noted.
    """

    _KEY: ClassVar = "demo:tenants"

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def note(self, tenant: str, number: int) -> None:
        """Notes that a task begins."""
        self._client.rpush(self._KEY, json.dumps(Begin(tenant, number, time())))

    def rows(self, convert: Any) -> list[list[str]]:
        """Returns what was seen, as rows of a table.

        Args:
            convert: The task.
        """
        waited = [self._waited(convert, limit) for limit in ("", None)]
        names = [f"task {number + 1} of the small one" for number in range(SMALL)]
        return [[name, *(f"after {seconds:.2f} s" for seconds in of)] for name, *of in zip(names, *waited, strict=True)]

    def _waited(self, convert: Any, limit: str | None) -> list[float]:
        """Returns for how long each task of the small tenant has waited, in s. limit: '' for no key."""
        self._client.delete(self._KEY)
        sent = [("big", number) for number in range(BIG)] + [("small", number) for number in range(SMALL)]
        for each in sent:
            convert.apply_async(each, limit=limit)
        sent_at, deadline = time(), monotonic() + PATIENCE_S
        while self._client.llen(self._KEY) < len(sent) and monotonic() < deadline:
            sleep(TASK_S)
        begins = [Begin(*json.loads(line)) for line in self._client.lrange(self._KEY, 0, -1)]
        at = {begin.number: begin.at for begin in begins if begin.tenant == "small"}
        return [max(at.get(number, sent_at + PATIENCE_S) - sent_at, 0.0) for number in range(SMALL)]
