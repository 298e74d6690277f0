"""Fixtures with real Celery workers."""

import logging
import os
from collections.abc import Iterator

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.options import LAYOUTS
from tests.support.commands.shell import Audit
from tests.support.servers.sentinels import PATIENT_MS, Sentinels
from tests.support.workers.fixtures import broker, make_proj, proj, raw_client
from tests.support.workers.standalone import standalone
from tests.support.workers.transfers import transfer

__all__ = ["broker", "make_proj", "proj", "raw_client", "standalone", "transfer"]


@pytest.fixture(scope="session")
def shared_slots_server() -> Iterator[PrivateRedis]:
    """A Redis Cluster of one node, for all tests that do not harm it, with what the tests before left in it."""
    with PrivateRedis(slots=True) as server:
        yield server


@pytest.fixture
def slots_server(shared_slots_server: PrivateRedis) -> PrivateRedis:
    """A Redis Cluster of one node, empty, that the test does not harm."""
    shared_slots_server.client().flushall()
    return shared_slots_server


@pytest.fixture
def sentinels() -> Iterator[Sentinels]:
    """A primary with a replica, and the Sentinels that watch them."""
    with Sentinels(down_after_ms=PATIENT_MS) as running:
        yield running


@pytest.fixture
def layout(request: pytest.FixtureRequest) -> str:
    """The form in which apps keep delayed messages."""
    return str(getattr(request, "param", "hash"))


@pytest.fixture
def audit(caplog: pytest.LogCaptureFixture) -> Audit:
    """Lists the lines of the audit that this process has logged, the latest first."""
    caplog.set_level(logging.INFO, "kombu_delayq.audit")
    return lambda: [vars(record)["audit"] for record in reversed(caplog.records) if "audit" in vars(record)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs tests marked ``both_layouts`` once for each layout, or those that DELAYQ_LAYOUTS names.

    With real workers, only the first form runs: to Celery and kombu the form makes no difference, and the tests of the
    scripts and of the store run in both.
    """
    given = any("layout" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "layout" in metafunc.fixturenames and metafunc.definition.get_closest_marker("both_layouts") and not given:
        forms = os.environ.get("DELAYQ_LAYOUTS", " ".join(LAYOUTS)).split()
        starts_workers = not {"proj", "make_proj"}.isdisjoint(metafunc.fixturenames)
        metafunc.parametrize("layout", forms[:1] if starts_workers else forms, indirect=True)
