"""A real Prometheus, and ``promtool``, which Debian's package ``prometheus`` brings."""

import os
import shutil
import subprocess

import pytest


def tool(name: str) -> str:
    """Returns the path of a program of Prometheus. Without it the test fails in CI, and is skipped elsewhere."""
    found = shutil.which(name)
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"there is no {name} on the PATH")
        pytest.skip(f"there is no {name} on the PATH: install Debian's package prometheus")
    return found


def promtool(*arguments: str, stdin: str = "") -> str:
    """Runs ``promtool``, which must succeed. Returns what it wrote."""
    done = subprocess.run([tool("promtool"), *arguments], input=stdin, capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said
