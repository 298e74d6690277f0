"""Runs pytest with several processes, and the tests that failed once more, one at a time.

Six tests on two cores keep each other waiting, and what waits too long fails. A fault fails alone, too. What failed the
first time is printed in full, so that a race is seen although the run goes on. More than ``MOST`` failures are no
chance: they do not run again.

``python -m tests.support.again ARGUMENTS OF PYTEST``; the status is that of pytest. An option with a path is one
argument, as in ``--ignore=PATH``.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

MOST = 10
FAILED = Path(".pytest_cache/v/cache/lastfailed")
# pytest-xdist writes the name of a test's group behind the test's own.
GROUP = re.compile(r"@[\w-]+$")


def main(arguments: list[str]) -> int:
    """Runs pytest once, or twice; returns its last status."""
    FAILED.unlink(missing_ok=True)  # what failed in a run before is not meant
    status = run(arguments)
    failed = json.loads(FAILED.read_text()) if status == pytest.ExitCode.TESTS_FAILED else {}
    if not 0 < len(failed) <= MOST:
        return status
    print(f"\nOnce more, one at a time: {len(failed)} that failed", *failed, sep="\n  ", flush=True)
    options = [one for one in arguments if not Path(one).exists()]
    return run([*options, "--numprocesses", "1", *(GROUP.sub("", one) for one in failed)])


def run(arguments: list[str]) -> int:
    """Runs pytest in a process of its own; returns its status."""
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
