"""``delayq demo``."""

import re
import subprocess

from tests.support.commands.shell import BIN


def test_the_demo_loses_nothing() -> None:
    """`delayq demo` ends by itself with exit code 0 and its table, which tells of the chain and the cancelled task."""
    result = subprocess.run([BIN / "delayq", "demo"], capture_output=True, text=True, timeout=90)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "kill -9" in result.stdout
    assert "nothing lost, nothing early, nothing double" in result.stdout
    assert "failed 3 times, then succeeded" in result.stdout
    assert re.search(r"^cancelled +never ran$", result.stdout, re.MULTILINE)
    assert "delayq demo --serve" in result.stdout
