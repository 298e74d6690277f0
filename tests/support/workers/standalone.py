"""Transfer workers in processes of their own, which a test may kill."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import until
from tests.support.workers.held import KEYS

_PROGRAM = """
import json, os, sys
from redis import Redis
from kombu_delayq.store import DelayStore
from kombu_delayq.store.keys import Keys
from kombu_delayq.transfer.worker import TransferWorker
from tests.support.store.tuned import tuned
port, options, keys = int(sys.argv[1]), tuned(**json.loads(sys.argv[2])), Keys()
TransferWorker(lambda: DelayStore(Redis(port=port, client_name=str(os.getpid())), keys, options=options)).run()
"""

#: Starts a transfer worker on a server; keywords are options.
Standalone = Callable[..., "subprocess.Popen[bytes]"]


def start_standalone(server: PrivateRedis, **options: Any) -> "subprocess.Popen[bytes]":
    """Starts a transfer worker. Its connections have its process id as client name."""
    arguments = [str(server.port), json.dumps(options)]
    return subprocess.Popen([sys.executable, "-c", _PROGRAM, *arguments])


def lease_holder(server: PrivateRedis, rank: int = 1) -> int | None:
    """Returns the process id of the leader (rank 1), or of the first or second standby (2, 3)."""
    with server.client() as client:
        name = client.get(KEYS.leases[rank - 1])
    return int(str(name).split(":")[1]) if name else None


def await_lease(server: PrivateRedis, process: "subprocess.Popen[bytes]", rank: int) -> None:
    """Waits until a transfer worker holds the lease of a rank."""
    until(lambda: lease_holder(server, rank) == process.pid, 90, f"a worker of rank {rank}")


@pytest.fixture
def standalone() -> Iterator[Standalone]:
    processes: list[subprocess.Popen[bytes]] = []

    def start(server: PrivateRedis, **options: Any) -> "subprocess.Popen[bytes]":
        processes.append(start_standalone(server, **options))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait(10)
