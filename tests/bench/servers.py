"""The private servers that keep the contenders' messages, and the figures that they give."""

import subprocess
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from time import sleep
from typing import Any

from celery_ext.demo.private_redis import PrivateRedis

#: What is noted in SLOWLOG, in µs.
SLOW_US = 1_000
#: What ends the commands that are counted.
END = "end of the commands that are counted"


class RedisServer:
    """A Redis without persistence."""

    def __init__(self) -> None:
        self._redis = PrivateRedis()
        self._client: Any = None

    @property
    def url(self) -> str:
        """Its address over TCP, database 0."""
        return self._redis.url

    def start(self) -> None:
        """Starts it, empty. If that fails, ``close`` ends what has been started."""
        self._client = self._redis.start().client()
        self._client.config_set("slowlog-max-len", 100_000)

    def close(self) -> None:
        """Ends it, and removes what it kept."""
        if self._client is not None:
            self._client.close()
        self._redis.close()

    def kept_bytes(self) -> int:
        """Returns the bytes that it takes: ``used_memory``."""
        return int(self._client.info("memory")["used_memory"])

    def cpu_s(self) -> float:
        """Returns the CPU time that the thread has taken which runs commands, in s."""
        return main_thread_s(self._client)

    def commands(self) -> int:
        """Returns how many commands it has done, those of scripts too."""
        return int(self._client.info("stats")["total_commands_processed"])

    def sent(self, seconds: float) -> int:
        """Returns how many commands its clients send within so many s; those that scripts run do not count."""
        with self._client.monitor() as monitor:
            sleep(seconds)
            self._client.echo(END)
            heard = iter(monitor.next_command, None)
            return sum(
                each["client_type"] != "lua" for each in takewhile(lambda each: END not in each["command"], heard)
            )

    def connections(self) -> int:
        """Returns how many connections are open, without this one."""
        return int(self._client.info("clients")["connected_clients"]) - 1

    def watch(self) -> None:
        """Begins to note long commands: empties SLOWLOG and what the latency monitor knows."""
        self._client.config_set("slowlog-log-slower-than", SLOW_US)
        self._client.slowlog_reset()
        self._client.config_set("latency-monitor-threshold", SLOW_US // 1000)
        self._client.execute_command("LATENCY RESET")

    def longest_ms(self) -> float | None:
        """Returns how long the longest command since ``watch`` kept others waiting, or the threshold of SLOWLOG.

        SLOWLOG has each command of a transaction alone; the latency monitor has whole transactions, in whole ms.
        """
        slow_us = max((entry["duration"] for entry in self._client.slowlog_get(100_000)), default=SLOW_US)
        events = self._client.execute_command("LATENCY LATEST")
        return max(slow_us / 1000, *(float(most) for event, _, _, most in events if event.endswith("command")), 0.0)


def main_thread_s(client: Any) -> float:
    """Returns the CPU time of the thread of Redis that runs commands, in s."""
    cpu = client.info("cpu")
    return float(cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"])


class PostgresServer:
    """A PostgreSQL with its default settings.

    Args:
        schema: Returns the statements that make the contender's tables.
    """

    def __init__(self, schema: Callable[[], str]) -> None:
        from tests.support.servers.postgres import PrivatePostgres

        self._schema = schema
        self._postgres = PrivatePostgres(fsync="on", full_page_writes="on", shared_buffers="128MB", jit="on")

    @property
    def url(self) -> str:
        """Its address, for psycopg."""
        return self._postgres.url.replace("+psycopg", "")

    def start(self) -> None:
        """Makes a cluster with the tables and starts it."""
        self._postgres.start()
        self._postgres.execute(self._schema())

    def close(self) -> None:
        """Ends it."""
        self._postgres.close()

    def kept_bytes(self) -> int:
        """Returns the size of the database's tables and indexes, after a checkpoint, without the log."""
        self._postgres.execute("CHECKPOINT")
        return int(self._postgres.execute("SELECT pg_database_size(current_database())")[0][0])

    def cpu_s(self) -> float:
        """Returns the CPU time of all its processes, and of those that have ended."""
        import psutil

        [parent] = (self._postgres.directory / "data" / "postmaster.pid").read_text().splitlines()[:1]
        processes = [psutil.Process(int(parent)), *psutil.Process(int(parent)).children()]
        return sum(sum(process.cpu_times()[:4]) for process in processes if process.is_running())

    def commands(self) -> int:
        """Returns the transactions of the database. A session reports them up to 10 s later."""
        counted = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        return int(self._postgres.execute(counted)[0][0])

    def sent(self, seconds: float) -> int:
        """Returns the transactions within so many s."""
        before = self.commands()
        sleep(seconds)
        return self.commands() - before

    def connections(self) -> int:
        """Returns how many clients are connected, without this one."""
        counted = "SELECT count(*) - 1 FROM pg_stat_activity WHERE backend_type = 'client backend'"
        return int(self._postgres.execute(counted)[0][0])

    def watch(self) -> None:
        """Does nothing, because a transaction does not keep others waiting."""

    def longest_ms(self) -> float | None:
        """Returns None: nobody has to wait."""
        return None


#: A server for one measure.
Server = RedisServer | PostgresServer


def postgres_version() -> str:
    """Returns the version of the server that is installed; empty if there is none."""
    for program in sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True):
        return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    return ""
