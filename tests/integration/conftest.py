"""Fixtures with real Celery workers."""

import os

import pytest

from kombu_delayq.options import BACKUPS
from tests.support.workers.fixtures import broker, make_proj, proj, raw_client
from tests.support.workers.standalone import standalone
from tests.support.workers.transfers import transfer

__all__ = ["broker", "make_proj", "proj", "raw_client", "standalone", "transfer"]

#: Packages whose tests with real workers run in one form. What they test is the same in both: consumers, connections,
#: commands, and the delays that Celery asks for.
WITH_ONE_FORM = {"cli", "connection", "consume", "delays", "transfer", "worker"}


@pytest.fixture
def backup(request: pytest.FixtureRequest) -> str:
    """The form in which apps keep delayed messages."""
    return str(getattr(request, "param", "hash"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs tests marked ``both_forms`` once for each form of backup, or those that DELAYQ_BACKUPS names.

    With real workers, the second form counts as long, or is left out: to Celery and kombu it makes no difference, and
    the tests of the scripts and of the store run in both forms.
    """
    given = any("backup" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "backup" in metafunc.fixturenames and metafunc.definition.get_closest_marker("both_forms") and not given:
        forms = os.environ.get("DELAYQ_BACKUPS", " ".join(BACKUPS)).split()
        starts_workers = not {"proj", "make_proj"}.isdisjoint(metafunc.fixturenames)
        marks = [pytest.mark.long] if starts_workers else []
        first, *others = forms
        if starts_workers and metafunc.module.__name__.split(".")[2] in WITH_ONE_FORM:
            others = []
        metafunc.parametrize("backup", [first, *(pytest.param(form, marks=marks) for form in others)], indirect=True)
