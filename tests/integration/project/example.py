"""A copy of an example project, and processes that run in it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import ROOT
from tests.support.conditions import until


class Example:
    """A copy of a directory of ``docs/examples``.

    Args:
        name: Name of the example.
        directory: Where the copy goes.
        environment: Variables on top of the test's own.
    """

    def __init__(self, name: str, directory: Path, environment: Mapping[str, str]) -> None:
        ignored = shutil.ignore_patterns("__pycache__", "db.sqlite3*")
        self.directory = Path(shutil.copytree(ROOT / "docs/examples" / name, directory / name, ignore=ignored))
        self._environment = {**os.environ, **environment}

    def run(self, *command: str) -> str:
        """Runs ``python``, which must succeed. Returns what it printed."""
        done = subprocess.run(
            [sys.executable, *command],
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def running(self, *command: str, ready: str, **more: Any) -> Iterator[Path]:
        """Runs ``python`` until the end of the block, which begins when it has logged ``ready``. Yields its log."""
        log = (
            self.directory / f"{command[-1].strip('-').replace('/', '-')}-{len(list(self.directory.glob('*.log')))}.log"
        )
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-u", *command],
                cwd=self.directory,
                env={**self._environment, **more},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            until(lambda: ready in log.read_text() or process.poll() is not None, 90, what=f"{command} is ready")
            assert process.poll() is None, log.read_text()
            yield log
        finally:
            process.terminate()
            try:
                process.wait(30)
            finally:
                process.kill()
                process.wait()
