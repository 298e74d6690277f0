"""Lets a Redis refuse commands for a while."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import redis

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.conditions import until


def _refusal(server: PrivateRedis) -> str:
    with server.client() as client:
        try:
            client.ping()
        except redis.RedisError as error:
            return str(error)
    return ""


@contextmanager
def busy(server: PrivateRedis) -> Iterator[None]:
    """Lets a script run, so that Redis answers all others that it is busy."""
    client = server.client()
    client.config_set("lua-time-limit", 10)

    def run() -> None:
        with suppress(redis.RedisError), server.client() as own:  # killed
            own.eval("while true do end", 0)

    script = Thread(target=run)
    script.start()
    try:
        until(lambda: _refusal(server).startswith("BUSY"))
        yield
    finally:
        client.script_kill()
        script.join()


@contextmanager
def unsaved(server: PrivateRedis) -> Iterator[None]:
    """Lets Redis fail to write a snapshot, so that it refuses writes."""
    client, snapshot = server.client(), server.directory / "dump.rdb"
    snapshot.mkdir()
    (snapshot / "in the way").touch()
    client.config_set("save", "3600 1")
    client.set("unsaved", 1)
    client.bgsave()
    try:
        until(lambda: _refusal(server).startswith("MISCONF"))
        yield
    finally:
        client.config_set("stop-writes-on-bgsave-error", "no")
