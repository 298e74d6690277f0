"""``GET /healthz``: whether Redis answers, and whether a transfer worker leads."""

import json
from typing import Literal, NamedTuple

import msgspec
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import Response

from celery_ext.serve.metrics.collector import StoreSource
from celery_ext.serve.problems import bad_request
from celery_ext.serve.service import serve_of


class HealthQuery(msgspec.Struct):
    """The parameter: ``leader=required`` for an error where no worker leads."""

    leader: Literal["required", "optional"] = "optional"


class HealthAnswer(msgspec.Struct):
    """Whether all is well, whether Redis answers, and whether a transfer worker leads."""

    status: Literal["ok", "failing"]
    redis: bool
    leader: bool | None


class Health(NamedTuple):
    """What a process finds that looks at its broker.

    Attributes:
        redis: Whether Redis answers.
        leader: Whether a transfer worker leads; None while Redis does not answer.
    """

    redis: bool
    leader: bool | None

    def answer(self, *, needs_leader: bool) -> tuple[int, str]:
        """Returns the HTTP status, 200 or 503, and the JSON of the answer."""
        healthy = self.redis and (self.leader or not needs_leader)
        found = {"status": "ok" if healthy else "failing", "redis": self.redis, "leader": self.leader}
        return (200 if healthy else 503), json.dumps(found) + "\n"


def health_of(source: StoreSource) -> Health:
    """Asks Redis for the leader; one round trip."""
    try:
        return Health(True, source.store.leases.leader() is not None)
    except (RedisError, OSError, OperationalError):
        return Health(False, None)


def healthz(request: Request) -> Response:
    """Answers with 200 while Redis answers, else with 503; with ``?leader=required``, also if no worker leads."""
    leader = request.query_params.get("leader", "optional")
    if leader not in ("required", "optional"):
        raise bad_request("leader is 'required' or 'optional'")
    status, text = health_of(serve_of(request).broker).answer(needs_leader=leader == "required")
    return Response(text, status, {"Cache-Control": "no-store"}, "application/json")
