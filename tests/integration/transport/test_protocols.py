"""Both task protocols, with every serializer and with compression."""

import time
from itertools import product
from typing import Any

import pytest
from celery import Celery

from tests.support.conditions import until
from tests.support.workers.harness import MakeProj, Proj

pytestmark = pytest.mark.both_layouts

SERIALIZERS = ("json", "pickle", "msgpack", "yaml")
PROTOCOLS = (1, 2)


@pytest.fixture
def tolerant(make_proj: MakeProj, monkeypatch: pytest.MonkeyPatch) -> Proj:
    """The app, whose workers accept every serializer."""
    monkeypatch.setenv("C_FORCE_ROOT", "1")  # a worker of root refuses pickle otherwise
    return make_proj(accept_content=list(SERIALIZERS))


def _send(proj: Proj, protocol: int, value: str, **options: Any) -> None:
    with Celery(f"protocol {protocol}", set_as_current=False) as app:
        app.conf.update({**proj.conf, "task_protocol": protocol})
        app.send_task("proj.record", (value,), **options)


@pytest.mark.journey
def test_delayed_tasks_of_every_protocol_and_body(tolerant: Proj) -> None:
    """A task of protocol 1 or 2 waits in Redis in any serializer, compressed or not, and runs once, not early."""
    due = time.time() + 3
    sent = []
    for protocol, serializer, compression in product(PROTOCOLS, SERIALIZERS, (None, "gzip", "bzip2")):
        value = f"{protocol} {serializer} {compression}"
        _send(tolerant, protocol, value, countdown=3, serializer=serializer, compression=compression)
        sent.append(value)
    assert tolerant.delayed() == len(sent)
    assert tolerant.server.client().llen("celery") == 0

    tolerant.worker()
    runs = tolerant.await_runs(len(sent))
    assert sorted(run["value"] for run in runs) == sorted(sent)
    assert all(run["at"] >= due for run in runs)
    assert all(run["eta"] for run in runs)
    until(lambda: tolerant.server.client().hlen("unacked") == 0)
