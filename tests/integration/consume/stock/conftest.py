"""Runs each test with each way of consuming, and on kombu's own transport."""

import os
from typing import Any

import pytest

from tests.support.workers.harness import TRANSPORT, MakeProj, Proj

#: The transport option ``consume``; "stock" is kombu's own transport, which shows that a test tells what stock does.
WAYS = ("reliable", "brpop", "stock")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test once for each way, unless it names the ways itself.

    With real workers, the first way runs always, the second counts as long, and kombu's own transport runs only where
    DELAYQ_WAYS names it: it shows that the tests tell what stock does, which changes with a release of kombu.
    """
    given = any(mark.args[0] == "consume" for mark in metafunc.definition.iter_markers("parametrize"))
    if "consume" in metafunc.fixturenames and not given:
        has_workers = "stock.workers" in metafunc.module.__name__
        marks = [pytest.mark.nightly] if has_workers else []
        first, *others = os.environ.get("DELAYQ_WAYS", " ".join(WAYS[:2] if has_workers else WAYS)).split()
        metafunc.parametrize("consume", [first, *(pytest.param(way, marks=marks) for way in others)])


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
