"""What a machine lacks: in CI a test fails for it, elsewhere it is skipped."""

import os
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Fails the test in CI for something that is not installed, and skips it elsewhere."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)
