"""Which Python Spark runs the data source with."""

import shutil
import subprocess
import sys
from pathlib import Path

#: What the data source needs there.
_PACKAGES = ("kombu_delayq", "celery_ext", "celery", "kombu", "redis", "pyarrow")
#: How long an interpreter may take to tell what it has, in s.
_TIMEOUT_S = 30.0


def complaint(python: str) -> str | None:
    """Says what is wrong with the interpreter that Spark has for its Python workers, or returns None.

    Args:
        python: Its name or path; Spark takes ``python3`` of the PATH unless it is told another.
    """
    found = shutil.which(python)
    # Of a virtual environment, ``python`` and ``python3`` are one.
    if found is None or Path(found).parent == Path(sys.executable).parent:
        return None
    lacking = _lacking(found)
    if not lacking:
        return None
    return (
        f"Spark runs its Python workers with {python}, which is {found} and has no {', '.join(lacking)}. Set the "
        f"environment variable PYSPARK_PYTHON, such as to {sys.executable}, before the Spark session is made"
    )


def _lacking(python: str) -> list[str]:
    code = f"from importlib.util import find_spec\nprint(*(name for name in {_PACKAGES} if find_spec(name) is None))"
    try:
        told = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []  # Spark will say more of it
    return told.stdout.split()
