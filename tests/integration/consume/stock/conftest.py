"""Runs each test with each way of consuming; by night on kombu's own transport, too."""

import os
from typing import Any

import pytest

from tests.support.workers.harness import TRANSPORT, MakeProj, Proj

#: The transport option ``consume``; "stock" is kombu's own transport, which shows that a test tells what stock does.
WAYS = ("reliable", "brpop", "stock")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test once for each way, unless it names the ways itself.

    Kombu's own transport, which shows that the tests tell what stock does, runs by night or where DELAYQ_WAYS names it;
    with real workers only there. The second way runs by night with real workers.
    """
    given = any(mark.args[0] == "consume" for mark in metafunc.definition.iter_markers("parametrize"))
    if "consume" in metafunc.fixturenames and not given:
        has_workers = "stock.workers" in metafunc.module.__name__
        ways = os.environ.get("DELAYQ_WAYS", " ".join(WAYS[:2] if has_workers else WAYS)).split()
        by_night = {*ways[1:]} if has_workers else {"stock"} - {*os.environ.get("DELAYQ_WAYS", "").split()}
        metafunc.parametrize(
            "consume", [pytest.param(way, marks=[pytest.mark.nightly] * (way in by_night)) for way in ways]
        )


@pytest.fixture
def make_proj(make_proj: MakeProj, consume: str) -> MakeProj:
    """Makes apps whose consumers consume in the way of the test."""

    def make(*args: Any, **conf: Any) -> Proj:
        if consume == "stock":
            conf.setdefault("broker_transport", "")
        elif conf.get("broker_transport", TRANSPORT) == TRANSPORT:
            conf["broker_transport_options"] = {"consume": consume, **conf.get("broker_transport_options", {})}
        return make_proj(*args, **conf)

    return make
