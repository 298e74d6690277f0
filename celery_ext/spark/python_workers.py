"""The Python workers that Spark starts: whether they have the packages, and how code that runs in them logs."""

import gc
import logging
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger("celery_ext.spark")
#: Packages that the data source imports in a Python worker.
_PACKAGES = ("kombu_delayq", "celery_ext", "celery", "kombu", "redis", "pyarrow")
#: How long an interpreter may take to list its packages, in s.
_TIMEOUT_S = 30.0


def log(level: int, text: str) -> None:
    """Logs a line. The line goes to stderr where logging has no handler, as in Spark's Python workers."""
    if not logger.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    logger.log(level, text)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Stops the search for reference cycles, which takes a seventh of the time and finds none in texts."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def missing_packages_warning(python: str) -> str | None:
    """Returns a warning if the interpreter of Spark's Python workers lacks packages, else None.

    Args:
        python: Name or path of the interpreter. Spark's default is the ``python3`` on the PATH.
    """
    found = shutil.which(python)
    # In a virtual environment, ``python`` and ``python3`` are the same interpreter.
    if found is None or Path(found).parent == Path(sys.executable).parent:
        return None
    missing = _missing_packages(found)
    if not missing:
        return None
    return (
        f"Spark runs its Python workers with {python}, which is {found} and has no {', '.join(missing)}. Set the "
        f"environment variable PYSPARK_PYTHON, such as to {sys.executable}, before the Spark session is made"
    )


def _missing_packages(python: str) -> list[str]:
    code = f"from importlib.util import find_spec\nprint(*(name for name in {_PACKAGES} if find_spec(name) is None))"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []  # An interpreter that does not start fails Spark itself, with a better message.
    return done.stdout.split()
