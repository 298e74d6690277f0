"""The Python that Spark runs its workers with."""

import os
import sys
from pathlib import Path

import pytest

from celery_ext.spark.python_workers import missing_packages_warning
from tests.support import ROOT


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
