"""The projects in docs/examples/testing: their tests pass, without a broker."""

import shutil

import pytest

from tests.integration.testing.test_plugin import ROOT, run_with_all

pytest_plugins = ["pytester"]

EXAMPLES = ROOT / "docs/examples/testing"


@pytest.mark.parametrize(
    ("example", "needed", "passed"),
    [("fastapi_trials", ["fastapi"], 2), ("django_orders", ["django", "pytest_django"], 2)],
)
def test_the_tests_of_an_example_pass(pytester: pytest.Pytester, example: str, needed: list[str], passed: int) -> None:
    """The tests of a project pass, with warnings as errors."""
    for module in needed:
        pytest.importorskip(module, reason="the extra `test-all` brings it")
    shutil.copytree(EXAMPLES / example, pytester.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    run_with_all(pytester, "-W", "error").assert_outcomes(passed=passed)


def test_the_how_to_names_the_examples() -> None:
    """The page leads to the projects."""
    page = (ROOT / "docs/how-to/testing.md").read_text(encoding="utf-8")
    for example in (path for path in EXAMPLES.iterdir() if path.is_dir()):
        assert f"examples/testing/{example.name}" in page
