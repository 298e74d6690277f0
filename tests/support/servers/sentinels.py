"""A master, its replicas and two Sentinels, as private processes."""

import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import redis
from redis.sentinel import MasterNotFoundError, Sentinel

from celery_ext.demo.private_redis import PrivateRedis, find_server
from tests.support.conditions import until
from tests.support.servers.proxies import Proxy

MASTER_NAME = "orders-broker"
#: For how long a server does not answer that the Sentinels take for dead: by default, and where nobody is to be taken
#: for dead who only waits for the processor, in ms.
DOWN_MS, PATIENT_MS = 700, 20_000
CONFIGURATION = """\
port {port}
bind 127.0.0.1
dir {directory}
sentinel monitor {name} 127.0.0.1 {master} 1
sentinel down-after-milliseconds {name} {down_after}
sentinel failover-timeout {name} 3000
"""


class Sentinels:
    """Two Sentinels that watch over a master with replicas.

    Args:
        *options: Further options of each server.
        replicas: Number of replicas.
        down_after_ms: For how long a server does not answer that is taken for dead, until a new master is awaited.

    Attributes:
        ports: Ports of the Sentinels.
        master: The first master.
        replicas: Its replicas, once they run.
    """

    def __init__(self, *options: str, replicas: int = 1, down_after_ms: int = DOWN_MS) -> None:
        self._options = (*options, "--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")
        self._count, self._down_after_ms = replicas, down_after_ms
        self.master = PrivateRedis(*self._options)
        self.replicas: list[PrivateRedis] = []
        self.ports: list[int] = []
        self._running = ExitStack()

    @property
    def replica(self) -> PrivateRedis:
        """The first replica. If it is the only one, it becomes the master."""
        return self.replicas[0]

    def urls(self, scheme: str) -> str:
        """Returns the broker URL that names all Sentinels."""
        return ";".join(f"{scheme}://127.0.0.1:{port}/0" for port in self.ports)

    def await_copies(self) -> None:
        """Waits until a replica has all that the master has answered."""
        with self.master.client() as client:
            client.publish("copied", "")  # WAIT is about what its own connection has sent to replicas
            until(lambda: client.wait(1, 1000), what="a replica has it")

    def fail_over(self) -> None:
        """Makes the replica the master, while the old master lives."""
        redis.Redis(port=self.ports[0]).execute_command("SENTINEL", "FAILOVER", MASTER_NAME)

    def current(self) -> PrivateRedis | None:
        """Returns the master that the first Sentinel names, None if it has none."""
        try:
            _, port = Sentinel([("127.0.0.1", self.ports[0])]).discover_master(MASTER_NAME)
        except MasterNotFoundError:
            return None
        return next(server for server in (self.master, *self.replicas) if server.port == int(port))

    def await_new_master(self) -> None:
        """Waits until all Sentinels name the replica as the master, and it takes writes."""
        if not role_of(self.master):
            for port in self.ports:
                command = ("SENTINEL", "SET", MASTER_NAME, "down-after-milliseconds", DOWN_MS)
                redis.Redis(port=port).execute_command(*command)
        until(lambda: all(self._names_new_master(port) for port in self.ports), 60, "a new master named")
        until(lambda: role_of(self.replica) == "master", 60, "a new master")

    def await_demotion(self) -> None:
        """Waits until the old master is a replica. The writes that it took until then are lost."""
        until(lambda: role_of(self.master) == "slave", 60, "the old master demoted")

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            starting.enter_context(self.master)
            follow = ("--replicaof", "127.0.0.1", str(self.master.port))
            for _ in range(self._count):
                self.replicas.append(starting.enter_context(PrivateRedis(*self._options, *follow)))
            directory = Path(starting.enter_context(tempfile.TemporaryDirectory(prefix="delayq-sentinel-")))
            for number in range(2):
                starting.callback(_end, self._start(directory, number))
            until(self._ready, 60, "Sentinels and replica know each other")
            self._running = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def _start(self, directory: Path, number: int) -> subprocess.Popen[bytes]:
        with Proxy(0) as free:
            self.ports.append(free.port)
        file = directory / f"sentinel-{number}.conf"
        file.write_text(
            CONFIGURATION.format(
                port=self.ports[number],
                directory=directory,
                name=MASTER_NAME,
                master=self.master.port,
                down_after=self._down_after_ms,
            )
        )
        with (directory / f"sentinel-{number}.log").open("ab") as log:
            return subprocess.Popen([find_server(), str(file), "--sentinel"], stdout=log, stderr=log)

    def _names_new_master(self, port: int) -> bool:
        try:
            found = Sentinel([("127.0.0.1", port)]).discover_master(MASTER_NAME)
        except MasterNotFoundError:
            return False
        return int(found[1]) == self.replica.port

    def _ready(self) -> bool:
        try:
            # Not `sentinel_master`: redis-py 6.4 cannot read its own reply.
            known = [redis.Redis(port=port).sentinel_masters()[MASTER_NAME] for port in self.ports]
        except redis.ConnectionError:
            return False
        count = len(self.replicas)
        in_sync = all(one.client().info("replication")["master_link_status"] == "up" for one in self.replicas)
        return in_sync and all(state["num-slaves"] == count and state["num-other-sentinels"] == 1 for state in known)


def role_of(server: PrivateRedis) -> str:
    """Returns ``master`` or ``slave``; nothing while it is away."""
    try:
        return str(server.client().info("replication")["role"])
    except redis.ConnectionError:  # a change of role cuts connections
        return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(10)
