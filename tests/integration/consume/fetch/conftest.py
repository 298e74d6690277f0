"""What the tests of fetching share."""

from collections.abc import Iterator

import pytest
from kombu import Connection

from tests.support.workers.harness import Proj


@pytest.fixture
def sender(proj: Proj) -> Iterator[Connection]:
    """A connection that publishes."""
    with proj.connection() as connection:
        yield connection
