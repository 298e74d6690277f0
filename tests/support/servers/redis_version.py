"""Which Redis the tests run against, and what it can do."""

import re
import subprocess
from functools import cache

import pytest

from celery_ext.demo.private_redis import find_server


@cache
def major_version() -> int:
    """Returns the first number of the version of the ``redis-server`` that tests start."""
    output = subprocess.run([find_server(), "--version"], capture_output=True, text=True, check=True).stdout
    return int(re.findall(r" v=(\d+)\.", output)[0])


@cache
def has_tls() -> bool:
    """Whether the ``redis-server`` that tests start was built with TLS."""
    # Without a certificate it reads its options, and ends. Valkey reads them without TLS, too, and ends later.
    done = subprocess.run(
        [find_server(), "--port", "0", "--tls-port", "1"], capture_output=True, text=True, check=False, timeout=20
    )
    said = done.stdout + done.stderr
    return "Bad directive" not in said and "Failed finding TLS support" not in said


def need_tls() -> None:
    """Skips a test on a server that was built without TLS."""
    if not has_tls():
        pytest.skip(f"{find_server()} was built without TLS")
