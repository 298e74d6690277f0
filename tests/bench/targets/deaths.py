"""How soon all runs again that hundreds of consumers held which died at once, and whom that keeps waiting."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import monotonic, sleep, time
from typing import Any

from kombu import Connection, Queue

from celery_ext import Call, send_many
from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.store import DelayStore
from kombu_delayq.store.types import Request
from kombu_delayq.transfer.dead import READ_S
from tests.bench.servers import SLOW_US
from tests.bench.targets.app import OURS, TASK, make_app
from tests.bench.targets.consume import TAKE, Worker
from tests.bench.targets.report import Figure
from tests.bench.targets.transfer import make_store
from tests.support.conditions import until
from tests.support.workers.held import CONSUMED, UNACKED
from tests.support.workers.standalone import await_lease, start_standalone

#: Processes that are killed, consumers in each, and messages that each of these holds.
PROCESSES, CONSUMERS, HELD = 6, 50, 8
#: Within how many s all have to run again; the longest that a command may take, and another client may wait, in ms.
LONGEST_S, COMMAND_MS = 10.0, 5.0
#: The queue, and the worker in which its messages run again.
QUEUE, LIVES = "held", "lives@bench"


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Kills all consumers at once, as if they were on another machine, some times."""
    found = [_killed() for _ in range(1 if quick else 3)]
    dead, messages = PROCESSES * CONSUMERS, PROCESSES * CONSUMERS * HELD
    took_s, command_ms, gap_ms = zip(*found, strict=True)
    name = f"{dead} consumers killed at once"
    note = f"median of {len(found)}; {PROCESSES} processes, one worker lives, and a transfer worker of its own leads"
    yield Figure(f"{name}: all {messages:,} run again", median(took_s), "s", LONGEST_S, note=note)
    yield Figure(f"{name}: longest command of Redis", median(command_ms), "ms", COMMAND_MS, note="SLOWLOG")
    yield Figure(f"{name}: longest PING, or fetch, of another", median(gap_ms), "ms", note="with waits for a core")


def _killed() -> tuple[float, float, float]:
    """Returns the time until all messages ran again in s, and the longest command and wait of another client in ms."""
    with ExitStack() as opened:
        server = opened.enter_context(PrivateRedis())
        client, app = server.client(), make_app(server.url, OURS)
        leader = start_standalone(server)
        opened.callback(leader.wait, 10)
        opened.callback(leader.kill)
        await_lease(server, leader, 1)
        worker = Worker(
            TAKE, server, Path(opened.enter_context(TemporaryDirectory())), "threads", "-Q", "other", "-n", LIVES
        )
        opened.callback(worker.close)
        until(lambda: LIVES in str(app.control.ping(timeout=0.5)), 60, "the worker is up")
        messages = PROCESSES * CONSUMERS * HELD
        send_many(app, TASK, [Call((0.0,))] * messages, queue=QUEUE)
        doomed = [opened.enter_context(_holding(server)) for _ in range(PROCESSES)]
        _await(client, messages)
        for process in doomed:
            process.send_signal(signal.SIGSTOP)  # its consumers say no more, and their connections stay
        for name, about in client.hgetall(CONSUMED).items():
            client.hset(CONSUMED, name, json.dumps({**json.loads(about), "process": "elsewhere"}))
        sleep(READ_S)  # until the leader has read that
        app.control.add_consumer(QUEUE, destination=[LIVES], reply=True)
        client.config_set("slowlog-log-slower-than", SLOW_US)
        client.slowlog_reset()
        probe = opened.enter_context(_probe(server))
        killed = time()
        for process in doomed:
            process.kill()
        until(lambda: worker.journal.count() >= messages, 120, "all messages have run again")
        # A task that is due at 0 notes when it begins.
        took_s = max(worker.journal.late_s()) - killed
        until(lambda: not client.exists(UNACKED, QUEUE), 60, "nothing is in hand")
        command_ms = max([entry["duration"] / 1000 for entry in client.slowlog_get(1000)], default=SLOW_US / 1000)
        return took_s, command_ms, max(probe) * 1000


def _await(client: Any, messages: int) -> None:
    until(lambda: client.hlen(UNACKED) == messages, 120, "all messages are in hand")
    count = PROCESSES * CONSUMERS + 1
    until(lambda: str(client.hvals(CONSUMED)).count('"subscribed": true') == count, 60, "all have subscribed")


@contextmanager
def _holding(server: PrivateRedis) -> Iterator["subprocess.Popen[bytes]"]:
    """Runs a process whose consumers hold messages."""
    process = subprocess.Popen([sys.executable, "-m", "tests.bench.targets.deaths", server.url])
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


@contextmanager
def _probe(server: PrivateRedis) -> Iterator[list[float]]:
    """Asks Redis all the time, and yields how long it took, in s."""
    took_s, stopping = [0.0], Event()
    store: DelayStore = make_store(server.client(), "hash")

    def ask() -> None:
        while not stopping.is_set():
            begun = monotonic()
            store.client.ping()
            pinged = monotonic()
            store.fetching.fetch(Request("", 1, 1, ["probed"], unnoted=frozenset(["probed"])))
            took_s.append(max(pinged - begun, monotonic() - pinged))

    thread = Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield took_s
    finally:
        stopping.set()
        thread.join()
        store.close()


def hold(url: str) -> None:
    """Makes consumers that take messages and keep them, until the process is killed."""
    options = {"transfer": False}
    connections = [Connection(url, transport=OURS, transport_options=options) for _ in range(CONSUMERS)]
    for connection in connections:
        channel, held = connection.channel(), list[Any]()
        channel.basic_qos(0, HELD, False)
        connection.Consumer([Queue(QUEUE)], channel=channel, on_message=held.append).consume()
        while len(held) < HELD:
            with suppress(TimeoutError):
                connection.drain_events(timeout=1)
    signal.pause()  # until it is killed


if __name__ == "__main__":
    hold(sys.argv[1])
