"""How the programs of contenders in Python are run."""

import sys
from collections.abc import Sequence
from importlib.metadata import version


def python(module: str, *arguments: str) -> Sequence[str]:
    """Returns the command that runs a module."""
    return (sys.executable, "-m", module, *arguments)


def versions(*packages: str) -> dict[str, str]:
    """Returns the versions of installed distributions."""
    return {each: version(each) for each in packages}
