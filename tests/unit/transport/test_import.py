"""Where the transport can be imported."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.wide

#: The names that eventlet takes out of the standard library, and that Windows has not.
WITHOUT_POLL = """
import select
for name in ("poll", "epoll", "kqueue"):
    vars(select).pop(name, None)
import kombu_delayq.transport
"""


def test_the_transport_needs_no_poll_of_the_system() -> None:
    """In a worker with an eventlet pool, and on Windows, ``select`` has no ``poll``."""
    subprocess.run([sys.executable, "-c", WITHOUT_POLL], check=True, timeout=60)
