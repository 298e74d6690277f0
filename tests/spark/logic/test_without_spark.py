"""What works without the packages of the extra ``spark``, and the Python that needs them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from celery_ext.spark import task_id
from celery_ext.spark.python_workers import missing_packages_warning
from tests.support import ROOT

_WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


def run_without(missing: tuple[str, ...], code: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a Python that does not have some packages."""
    program = _WITHOUT.format(missing=missing) + code
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


def test_a_task_id_needs_neither_spark_nor_arrow() -> None:
    """An app that only cancels what a Spark job has enqueued gets the same id without the packages of the extra."""
    code = "from celery_ext.spark import task_id; print(task_id('orders.close', 7, 'é'))"
    done = run_without(("pyspark", "pyarrow"), code)
    assert done.stdout.strip() == task_id("orders.close", 7, "é"), done.stderr


def test_options_and_errors_need_neither_spark_nor_arrow() -> None:
    """The tables of the documentation are made from modules that need no package of the extra."""
    code = "import celery_ext.spark.options, celery_ext.spark.errors; print(celery_ext.spark.errors.BadRow.__name__)"
    done = run_without(("pyspark", "pyarrow"), code)
    assert done.stdout.strip() == "BadRow", done.stderr


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
@pytest.mark.parametrize("name", ["register", "CeleryDataSource"])
def test_a_missing_package_is_named_with_the_extra(missing: str, name: str) -> None:
    """What needs Spark says which package is missing, and which extra brings it."""
    done = run_without((missing,), f"from celery_ext.spark import {name}")
    assert done.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: celery_ext.spark.{name} needs {missing}, which is not installed. "
        "Install it: pip install 'kombu-delayq[spark]'"
    )


def python_in(directory: Path, options: str) -> Path:
    """Makes a command ``python3`` that is the Python of the tests with some options."""
    directory.mkdir()
    command = directory / "python3"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {options} "$@"\n')
    command.chmod(0o755)
    return command


def test_a_python_without_the_packages_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A python3 on the PATH that lacks the packages is named, with what it lacks and the variable to set."""
    other = python_in(tmp_path / "bin", "-I -S")
    monkeypatch.setenv("PATH", f"{other.parent}{os.pathsep}{os.environ['PATH']}")
    told = missing_packages_warning("python3")
    assert told is not None
    assert f"python3, which is {other} and has no kombu_delayq, celery_ext, celery, kombu, redis, pyarrow." in told
    assert f"PYSPARK_PYTHON, such as to {sys.executable}" in told


def test_a_python_with_the_packages_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter elsewhere that has all packages is as good as the one that runs."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert missing_packages_warning(str(python_in(tmp_path / "bin", ""))) is None
    assert missing_packages_warning(sys.executable) is None
