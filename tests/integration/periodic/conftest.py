"""A broker for processes that arm periodic entries: a plain server, and for some tests a cluster of three nodes."""

from typing import Any

import pytest

from tests.support.workers.periodic import start_process

__all__ = ["start_process"]


@pytest.fixture
def broker_url(request: pytest.FixtureRequest) -> str:
    """URL of an empty broker; the parameter ``cluster`` makes it one of several nodes."""
    if getattr(request, "param", "plain") == "cluster":
        return str(request.getfixturevalue("cluster").url)
    request.getfixturevalue("client")
    server: Any = request.getfixturevalue("redis_server")
    return str(server.url)
