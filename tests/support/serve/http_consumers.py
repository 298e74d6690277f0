"""Consumers over HTTP with tokens, and servers for them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve.access.identity import Action
from celery_ext.serve.access.tokens import Token
from tests.support.conditions import until
from tests.support.serve.running import Served, token_of, tokens_file

#: Names of tokens; the secret of each is ``dq_`` and its name.
TOKENS: dict[str, dict[str, Any]] = {
    "billing": {},
    "other": {},
    "exact": {"queues": ("new",)},
    "narrow": {"queues": ("shop.*",)},
    "named": {"tasks": ("orders.*",)},
    "reader": {"actions": [Action.READ]},
}


class HttpConsumer:
    """A consumer over HTTP.

    Args:
        served: The server.
        holder: Name of its token.
    """

    def __init__(self, served: Served, holder: str = "billing") -> None:
        headers = {"Authorization": f"Bearer dq_{holder}"}
        self.client = httpx.Client(base_url=served.url, headers=headers, timeout=70)

    def take(self, queue: str = "orders", **how: Any) -> dict[str, Any]:
        """Takes messages; keywords as in the query. Returns the answer."""
        return self.post(f"/v1/queues/{queue}:take", params=how)

    def ack(self, taken: dict[str, Any], *tags: str) -> dict[str, Any]:
        """Acknowledges messages of a take, by default all."""
        return self.of(taken, "ack", tags=tags or tags_of(taken))

    def of(self, taken: dict[str, Any], verb: str, **body: Any) -> dict[str, Any]:
        """Does something with the lease of a take. Returns the answer."""
        return self.post(f"/v1/leases/{taken['lease']['id']}:{verb}", json=body)

    def post(self, path: str, **request: Any) -> dict[str, Any]:
        """Sends a request that must succeed. Returns the answer."""
        answer = self.client.post(path, **request)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def refused(self, path: str, **request: Any) -> tuple[int, str]:
        """Sends a request that must not succeed. Returns status and kind of the problem."""
        answer = self.client.post(path, **request)
        assert answer.headers["content-type"] == "application/problem+json", answer.text
        problem = answer.json()
        assert problem["status"] == answer.status_code
        return answer.status_code, problem["type"].removeprefix("urn:delayq:problem:")


#: Starts a server; the URL of a broker in place of the test's own.
Serve = Callable[..., Served]


def looks(client: redis.Redis) -> int:
    """Counts how often somebody has looked whether messages are ready."""
    return int(client.info("commandstats").get("cmdstat_llen", {}).get("calls", 0))


def await_look(client: redis.Redis) -> None:
    """Waits until somebody looks from now on, as who waits for messages does."""
    before = looks(client)
    until(lambda: looks(client) > before)


def tags_of(taken: dict[str, Any]) -> list[str]:
    """Returns the tags of what was taken."""
    return [message["tag"] for message in taken["messages"]]


def numbers_of(taken: dict[str, Any]) -> list[Any]:
    """Returns the first argument of each task that was taken."""
    return [message["args"][0] for message in taken["messages"]]


def serve_to_holders(url: str, directory: Path) -> Served:
    """Starts a server for a broker, which knows the tokens."""
    tokens = tokens_file(directory / "tokens.json", *(_token(name, **given) for name, given in TOKENS.items()))
    log = directory / f"log-{len(list(directory.iterdir()))}"
    return Served(url, "--allow-write", "--tokens", str(tokens), log=log)


@pytest.fixture
def serve(redis_server: PrivateRedis, client: Any, tmp_path: Path) -> Iterator[Serve]:
    """Starts servers on an empty broker."""
    started: list[Served] = []

    def start(url: str | None = None) -> Served:
        started.append(serve_to_holders(url or redis_server.url, tmp_path))
        return started[-1]

    yield start
    for served in started:
        served.kill()


def _token(name: str, **given: Any) -> Token:
    return token_of(f"dq_{name}", name, **{"actions": Action, **given})
