"""How the tests are cut: what starts processes is seen, whoever starts them."""

import multiprocessing
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.cut import CONTRACT, is_wide
from tests.support.workers.harness import Proj


def _helper() -> None:
    subprocess.run(["true"], check=True)


class _Helper:
    def start(self) -> None:
        multiprocessing.Process()


def _by_a_helper() -> None:
    _helper()


def _by_a_class() -> None:
    _Helper()


def _by_a_worker(proj: Proj) -> None:
    proj.worker()


def _alone(proj: Proj) -> None:
    proj.send("add")


@pytest.mark.parametrize(
    ("test", "fixtures", "expected"),
    [
        (_by_a_helper, [], True),
        (_by_a_class, [], True),
        (_by_a_worker, ["proj", "make_proj"], True),
        (_alone, ["proj", "make_proj"], False),
    ],
)
def test_what_starts_processes_is_wide(
    request: pytest.FixtureRequest, test: object, fixtures: list[str], expected: bool
) -> None:
    """A process that a helper, a class or an app starts is found; sending needs none."""
    item = pytest.Function.from_parent(request.node.parent, name="test", callobj=test)
    item.path, item.fixturenames = Path(__file__), fixtures
    assert is_wide(item) is expected


def test_the_contract_names_what_there_is() -> None:
    """Each file and folder of the contract exists."""
    assert [path for path in CONTRACT if not (ROOT / path).exists()] == []
