"""A node of a Redis Cluster: a private process, with the commands that a test sends to it."""

import os
import random
import signal
import socket
from contextlib import suppress
from typing import Any

import redis

from celery_ext.demo.private_redis import PrivateRedis

#: Ports of nodes. Their buses have the ports 10,000 above. Both lie below those that the kernel gives to connections: a
#: client that calls a killed node would now and then call itself, and the node could not come back.
PORTS = range(10_000, 22_000)


class Node:
    """A ``redis-server`` process of a cluster. It is a primary or a replica, and may change from one to the other.

    Args:
        *options: Options of ``redis-server``.
        password: Its password, if any.
        tls: Whether its port speaks TLS.

    Attributes:
        port: Its port, also after a restart.
        server: The process.
        is_up: Whether the process runs; also while it is stopped.
        is_stopped: Whether it was stopped (SIGSTOP).
    """

    def __init__(self, *options: str, password: str = "", tls: bool = False) -> None:
        self.port = free_port()
        encrypted = ("--port", "0", "--tls-port", str(self.port)) if tls else ()
        self.server = PrivateRedis(*options, *encrypted, port=self.port, slots=False)
        self.is_up = self.is_stopped = False
        # Over the socket file: it needs no TLS.
        self.client = redis.Redis(
            unix_socket_path=str(self.server.socket_path),
            password=password or None,
            decode_responses=True,
            socket_timeout=20,
        )
        self._id = ""

    def __repr__(self) -> str:
        return f"<node :{self.port}>"

    @property
    def id(self) -> str:
        """What the cluster calls it."""
        self._id = self._id or str(self.client.execute_command("CLUSTER MYID"))
        return self._id

    def start(self) -> None:
        """Starts the process, with the configuration that it had; keys are gone. It follows who has taken its place."""
        self.server.start()
        self.is_up = True

    def kill(self) -> None:
        """SIGKILL."""
        self.server.stop(signal.SIGKILL)
        self.is_up = self.is_stopped = False

    def stop(self) -> None:
        """SIGSTOP: it keeps its connections, and answers nobody."""
        os.kill(self.server.pid, signal.SIGSTOP)
        self.is_stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self.server.pid, signal.SIGCONT)
        self.is_stopped = False

    def close(self) -> None:
        """Ends the process, and removes its files."""
        self.client.close()
        self.server.close()
        self.is_up = self.is_stopped = False

    def role(self) -> str:
        """Returns ``master``, ``slave``, or nothing while it is away."""
        try:
            return str(self.client.info("replication")["role"])
        except redis.ConnectionError:
            return ""

    def known(self) -> dict[str, dict[str, Any]]:
        """Returns the nodes as it sees them: by id, with flags, master_id and slots as redis-py names them."""
        found = self.client.execute_command("CLUSTER NODES")
        return {str(node["node_id"]): node for node in found.values()}

    def set_slot(self, slot: int, *what: str) -> None:
        """Sends CLUSTER SETSLOT."""
        self.client.execute_command("CLUSTER SETSLOT", slot, *what)


def free_port() -> int:
    """Returns a port for a node that is free now, as is that of its bus."""
    while True:
        port = random.choice(PORTS)
        with suppress(OSError), socket.socket() as probe, socket.socket() as bus:
            probe.bind(("127.0.0.1", port))
            bus.bind(("127.0.0.1", port + 10_000))
            return port
