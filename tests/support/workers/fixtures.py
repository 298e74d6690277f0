"""Apps on an empty broker, with real workers."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.workers.harness import TRANSPORT, MakeProj, Proj, beside

#: With ``off``, workers of tests run in Celery's own way.
PATCH_CELERY = os.environ.get("DELAYQ_PATCH_CELERY", "on")
#: Of a test that shows what Celery's own way does not have.
patched = pytest.mark.skipif(PATCH_CELERY == "off", reason="Celery's own way does not have it")


@pytest.fixture
def make_proj(redis_server: PrivateRedis, layout: str) -> Iterator[MakeProj]:
    """Makes the app on an empty broker with our transport.

    ``server=`` puts the broker elsewhere, other keywords are settings of the app; ``broker_transport=""`` makes it
    stock.
    """
    made: list[Proj] = []
    own = beside(redis_server)
    own.client().flushall()

    def make(server: PrivateRedis | None = None, **conf: Any) -> Proj:
        broker = server or redis_server
        settings: dict[str, Any] = {
            "broker_url": broker.url,
            "broker_transport": TRANSPORT,
            "result_backend": own.url_of(1),
            "broker_connection_retry_on_startup": True,
            **conf,
        }
        if PATCH_CELERY == "off":
            settings.setdefault("delayq_patch_celery", False)
        if settings["broker_transport"] == TRANSPORT and layout != "hash":
            settings["broker_transport_options"] = {"layout": layout, **settings.get("broker_transport_options", {})}
        made.append(Proj(broker, settings, own))
        return made[-1]

    yield make
    for proj in made:
        proj.close()


@pytest.fixture
def proj(make_proj: MakeProj) -> Proj:
    """The app on our transport, all else at its defaults."""
    return make_proj()


@pytest.fixture
def broker(redis_server: PrivateRedis) -> PrivateRedis:
    """An empty broker, for commands that need no app."""
    return redis_server


@pytest.fixture
def raw_client(broker: PrivateRedis) -> redis.Redis:
    """A client of it that does not decode."""
    return redis.Redis(port=broker.port)
