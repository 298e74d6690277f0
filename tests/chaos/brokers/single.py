"""One Redis that forgets nothing, and what can befall it."""

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self

import psutil
import redis

from celery_ext.demo.private_redis import PrivateRedis
from tests.chaos.ledger import aof
from tests.chaos.ledger.events import FaultLog
from tests.support.conditions import until
from tests.support.servers.redis_version import major_version

#: Every write is on the disk before it is answered.
AOF = ("--appendonly", "yes", "--appendfsync", "always", "--aof-use-rdb-preamble", "no")
#: Name of the harness's own clients, and how names begin that no fault is meant for.
HARNESS = "chaos-harness"
SPARED = (HARNESS, "sentinel-")


#: How often each fault comes to a fleet, in proportion to the others.
WEIGHTS = {
    "kill": 30,
    "kill child": 6,
    "kill transfer": 8,
    "kill publisher": 5,
    "stop shortly": 10,
    "stop for longer than the lease": 8,
    "term": 10,
    "client kill": 14,
    "script flush": 6,
    "debug sleep": 5,
    "redis kill": 5,
    "redis full": 5,
}
#: Longest times in s: DEBUG SLEEP, Redis or a node away, Redis full.
SLEEP_S, AWAY_S, FULL_S = 1.5, 1.5, 2.0
#: What befalls a Redis, by its kind.
Acts = dict[str, Callable[[], object]]


def options() -> tuple[str, ...]:
    """Returns the options of a server that allows DEBUG and keeps all in its AOF, which before Redis 7 is one file."""
    of_version = ("--enable-debug-command", "yes") if major_version() >= 7 else ("--auto-aof-rewrite-percentage", "0")
    return *AOF, "--maxmemory-policy", "noeviction", *of_version


class SingleRedis:
    """One server.

    Args:
        directory: For the list of faults.

    Attributes:
        faults: What befell the fleet.
    """

    weights: ClassVar = WEIGHTS

    def __init__(self, directory: Path) -> None:
        self.server = PrivateRedis(*options())
        self.faults = FaultLog(directory)
        # Beside the server's own directory, because links need one file system.
        self._log = Path(tempfile.mkdtemp(prefix="delayq-chaos-log-"))

    def url(self, by: str) -> str:
        """Returns the broker URL for a process of ours or of stock."""
        return self.server.url

    def transport_options(self) -> dict[str, Any]:
        """Returns the transport options that the URL needs."""
        return {}

    def acts(self, strength: float, chance: random.Random) -> Acts:
        """Returns what may befall it.

        Args:
            strength: A number from 0 to 1 that says how long it lasts, or how many it befalls.
            chance: Chooses the victims.
        """
        return {
            "client kill": lambda: self.kill_clients(1 + int(6 * strength**3), chance),
            "script flush": self.flush_scripts,
            "debug sleep": lambda: self.pause(SLEEP_S * strength),
            "redis kill": lambda: self.kill(AWAY_S * strength),
            "redis full": lambda: self.fill(FULL_S * strength),
        }

    def client(self) -> redis.Redis:
        """Returns a client of the server that takes writes."""
        return redis.Redis(port=self._primary().port, decode_responses=True, client_name=HARNESS, socket_timeout=10)

    def node_client(self) -> redis.Redis:
        """Returns a client of one server, for commands that concern it alone."""
        return self.client()

    def kill(self, away_s: float) -> None:
        """Kills the server, and starts it again after a while."""
        begin = time.time()
        self.server.stop(signal.SIGKILL)
        time.sleep(away_s)
        self.server.start()
        until(self._has_loaded, 300, "Redis has loaded its AOF")
        self.faults.add("redis kill", begin=begin, end=time.time())

    def excuse(self, at: float) -> str:
        """Returns why a message that was written at a time (s since the epoch) may be gone; empty if it must not."""
        return ""

    def gone_with(self, intended: float, due: float) -> str:
        """Returns why a message that was due then may be gone; empty if it must not. Both in s since the epoch."""
        return ""

    def waiting_beside(self) -> int:
        """Counts messages that wait elsewhere than in Redis."""
        return 0

    def pause(self, for_s: float) -> None:
        """Makes the server answer nobody for a while."""
        begin = time.time()
        with self.client() as client:
            client.execute_command("DEBUG", "SLEEP", for_s)
        self.faults.add("debug sleep", begin=begin, end=time.time())

    def flush_scripts(self) -> None:
        """Makes the server forget all scripts."""
        with self.client() as client:
            client.script_flush()
        self.faults.add("script flush", begin=time.time())

    def fill(self, for_s: float) -> None:
        """Makes the server full for a while."""
        begin = time.time()
        with self.client() as client:
            client.config_set("maxmemory", int(client.info("memory")["used_memory"]))
            time.sleep(for_s)
            client.config_set("maxmemory", 0)
        self.faults.add("redis full", begin=begin, end=time.time())

    def kill_clients(self, count: int, chance: random.Random) -> None:
        """Cuts some connections of the fleet, and notes whose they were."""
        owners = {}
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.pid:
                owners[f"{connection.laddr.ip}:{connection.laddr.port}"] = connection.pid
        with self.node_client() as client:
            theirs = [
                entry
                for entry in client.client_list()
                if not entry["name"].startswith(SPARED) and entry["flags"] not in "MS"
            ]
            for entry in chance.sample(theirs, min(count, len(theirs))):
                with suppress(redis.ResponseError, ProcessLookupError):  # it has gone by itself
                    client.client_kill(entry["addr"])
                    owner = owners.get(entry["addr"], 0)
                    main = os.getsid(owner) if owner else -1
                    self.faults.add("client kill", main=main, begin=time.time(), note=str(entry["cmd"]))

    def look(self) -> None:
        """Keeps the server's log. Is called all the time while the fleet runs."""
        aof.keep(self.server.directory, self._log)

    def steps(self, ids: Collection[str]) -> dict[str, list[str]]:
        """Returns what became of the messages of some tasks, by the server's log, in words."""
        self.look()
        files = aof.kept_files(self._log)
        return aof.Trace(ids).read(files).steps if files else {}

    def _primary(self) -> PrivateRedis:
        return self.server

    def _has_loaded(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.info("persistence")["loading"] == 0)
        except redis.ConnectionError:
            return False

    def __enter__(self) -> Self:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()
        shutil.rmtree(self._log)
