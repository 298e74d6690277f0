"""The private servers that keep the contenders' messages, and the figures that they give."""

from typing import Any, Protocol

from celery_ext.demo.private_redis import PrivateRedis

#: What is noted in SLOWLOG, in µs.
SLOW_US = 1_000


class Server(Protocol):
    """A server for one measure."""

    @property
    def url(self) -> str:
        """Its address, as the contender's programs take it."""

    def start(self) -> None:
        """Starts it, empty, and returns when it answers. If it fails, ``close`` ends what has been started."""

    def close(self) -> None:
        """Ends it and removes what it kept."""

    def kept_bytes(self) -> int:
        """Returns the bytes that it takes, in memory, or for a database on disk."""

    def cpu_s(self) -> float:
        """Returns the CPU time that it has taken, in s."""

    def commands(self) -> int | None:
        """Returns how many commands, or transactions, it has done, without this call; None where it does not tell."""

    def reads(self) -> int | None:
        """Returns how often it has read from a connection, without this call; None where it does not tell."""

    def connections(self) -> int:
        """Returns how many connections are open, without this one."""

    def watch(self) -> None:
        """Begins to note long commands."""

    def longest_ms(self) -> float | None:
        """Returns how long the longest command since ``watch`` kept others waiting; None where none has to wait."""


class RedisServer:
    """A Redis without persistence."""

    def __init__(self) -> None:
        self._redis = PrivateRedis()
        self._client: Any = self._redis.client()

    @property
    def url(self) -> str:
        """Its address over TCP, database 0."""
        return self._redis.url

    def start(self) -> None:
        """Starts it."""
        self._redis.start()
        self._client.config_set("slowlog-max-len", 100_000)

    def close(self) -> None:
        """Ends it."""
        self._client.close()
        self._redis.close()

    def kept_bytes(self) -> int:
        """Returns ``used_memory``."""
        return int(self._client.info("memory")["used_memory"])

    def cpu_s(self) -> float:
        """Returns the CPU time of the thread that runs commands."""
        return main_thread_s(self._client)

    def commands(self) -> int | None:
        """Returns ``total_commands_processed``, which counts what scripts call, too."""
        return int(self._client.info("stats")["total_commands_processed"])

    def reads(self) -> int | None:
        """Returns ``total_reads_processed`` (from Redis 7.0 on)."""
        found = self._client.info("stats").get("total_reads_processed")
        return None if found is None else int(found)

    def connections(self) -> int:
        """Returns ``connected_clients`` without this one."""
        return int(self._client.info("clients")["connected_clients"]) - 1

    def watch(self) -> None:
        """Empties SLOWLOG and what the latency monitor knows."""
        self._client.config_set("slowlog-log-slower-than", SLOW_US)
        self._client.slowlog_reset()
        self._client.config_set("latency-monitor-threshold", SLOW_US // 1000)
        self._client.execute_command("LATENCY RESET")

    def longest_ms(self) -> float | None:
        """Returns the longest time in SLOWLOG, or its threshold if it has none.

        SLOWLOG has each command of a transaction alone; the latency monitor has whole transactions, in whole ms.
        """
        slow_us = max((entry["duration"] for entry in self._client.slowlog_get(100_000)), default=SLOW_US)
        events = self._client.execute_command("LATENCY LATEST")
        return max(slow_us / 1000, *(float(most) for event, _, _, most in events if event.endswith("command")), 0.0)


def main_thread_s(client: Any) -> float:
    """Returns the CPU time of the thread of Redis that runs commands, in s."""
    cpu = client.info("cpu")
    return float(cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"])
