"""Measures how fast a Spark task sends rows where Redis is slow to answer: it syncs each write, or is 1 ms away.

Processes write as a Spark task does, without a JVM, one at a time. A process that makes the next chunk while Redis
stores the last one takes turns with a process that waits for each chunk, or with a process of another checkout of this
repository.
"""

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import product
from pathlib import Path
from socket import IPPROTO_TCP, SHUT_WR, TCP_NODELAY, create_connection, create_server, socket
from statistics import median
from threading import Condition, Thread
from time import monotonic, process_time, sleep
from typing import Any

import click

from celery_ext.demo.private_redis import PrivateRedis

HERE = Path(__file__).parents[3]
#: Rows in a batch of Arrow, as Spark's default has them.
BATCH = 10_000


@click.group(invoke_without_command=True)
@click.option("--beside", type=click.Path(file_okay=False, exists=True, path_type=Path), help="Another checkout.")
@click.option("--rows", default=20_000, show_default=True, help="Rows that are written in each measurement.")
@click.option(
    "--rounds", default=15, show_default=True, help="How often each process is measured, in turn with the other."
)
@click.option("--delay-ms", default=1.0, show_default=True, help="How long a packet takes in each direction.")
@click.option("--only", default="", help="Only measurements whose name contains this text.")
@click.pass_context
def main(context: click.Context, beside: Path | None, rows: int, rounds: int, delay_ms: float, only: str) -> None:
    """Prints the medians, and how many times as fast sending ahead is."""
    if context.invoked_subcommand is not None:
        return
    ways = {"ahead": (HERE, False), "beside": (beside, False) if beside else (HERE, True)}
    servers: dict[str, tuple[Sequence[str], float]] = {
        "appendfsync always": (("--appendonly", "yes", "--appendfsync", "always"), 0),
        f"{delay_ms:g} ms each way": ((), delay_ms),
        "neither": ((), 0),
    }
    click.echo(f"{rows:,} rows, medians of {rounds}; wall and CPU time of the writing process in s\n")
    for delayed, (name, (settings, ms)) in product((False, True), servers.items()):
        name = f"{'delayed' if delayed else 'plain'}, {name}"
        if only not in name:
            continue
        found = _measured(ways, settings, ms, rows, rounds, delayed)
        line = ", ".join(f"{way} {median(wall):.2f} ({median(cpu):.2f} CPU)" for way, (wall, cpu) in found.items())
        ratios = [slow / fast for slow, fast in zip(found["beside"][0], found["ahead"][0], strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        click.echo(f"{name}: {line}; {median(ratios):.2f} times as fast ({spread})")


@main.command()
@click.argument("url")
@click.argument("rows", type=int)
@click.option("--waits", is_flag=True)
@click.option("--delayed", is_flag=True)
def writer(url: str, rows: int, waits: bool, delayed: bool) -> None:
    """Writes rows whenever it reads a line, and prints the wall and the CPU time of this."""
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from celery_ext.spark import CeleryDataSource
    from celery_ext.spark.write.sender import Sender

    if waits:
        flush: Any = Sender._flush

        def flush_and_wait(sender: Sender, queue: str) -> None:
            flush(sender, queue)
            sender._confirm()

        Sender._flush = flush_and_wait  # type: ignore[method-assign]
    schema = StructType().add("order_id", "long").add("customer", "string")
    given = {"broker_url": url, "task": "orders.close", "queue": "orders", "id_columns": "order_id"}
    later = {"countdown": "1h", "spread": "1h"} if delayed else {}

    def batches(count: int) -> Iterator[pa.RecordBatch]:
        for at in range(0, count, BATCH):
            numbers = range(at, min(at + BATCH, count))
            columns = [pa.array(numbers, pa.int64()), pa.array([f"c{n}" for n in numbers])]
            yield pa.RecordBatch.from_arrays(columns, ["order_id", "customer"])

    CeleryDataSource({**given, **later}).writer(schema, False).write(batches(1000))  # loads what it needs
    for _ in sys.stdin:
        job = CeleryDataSource({**given, **later}).writer(schema, False)
        wall, cpu = monotonic(), process_time()
        assert job.write(batches(rows)).enqueued == rows
        click.echo(json.dumps([monotonic() - wall, process_time() - cpu]))


def _measured(
    ways: dict[str, tuple[Path, bool]], settings: Sequence[str], delay_ms: float, rows: int, rounds: int, delayed: bool
) -> dict[str, tuple[list[float], list[float]]]:
    found: dict[str, tuple[list[float], list[float]]] = {way: ([], []) for way in ways}
    with ExitStack() as stack:
        server = stack.enter_context(PrivateRedis(*settings))
        port = stack.enter_context(_slowed(server.port, delay_ms)) if delay_ms else server.port
        flags = [f"redis://127.0.0.1:{port}/0", str(rows), *(["--delayed"] if delayed else [])]
        writers = {
            way: stack.enter_context(_child("writer", *flags, *(["--waits"] if waits else []), checkout=checkout))
            for way, (checkout, waits) in ways.items()
        }
        for turn in range(rounds):
            for way in sorted(ways, reverse=bool(turn % 2)):
                server.client().flushall()
                for times, took in zip(found[way], json.loads(_asked(writers[way])), strict=True):
                    times.append(took)
    return found


@contextmanager
def _child(*arguments: str, checkout: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, __file__, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as child:
        try:
            yield child
        finally:
            child.terminate()


def _asked(child: "subprocess.Popen[str]") -> str:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    return child.stdout.readline()


@contextmanager
def _slowed(port: int, delay_ms: float) -> Iterator[int]:
    """Runs a proxy in a process of its own. It delays as ``tc qdisc add dev lo root netem delay 1ms`` does."""
    with _child("proxy", str(port), str(delay_ms), checkout=HERE) as proxy:
        assert proxy.stdout is not None
        yield int(proxy.stdout.readline())


@main.command()
@click.argument("port", type=int)
@click.argument("delay_ms", type=float)
def proxy(port: int, delay_ms: float) -> None:
    """Opens a port, prints it, and passes its packets on to another port and back, each ``delay_ms`` late."""
    sys.setswitchinterval(0.0001)
    server = create_server(("127.0.0.1", 0))
    click.echo(server.getsockname()[1])
    while True:
        near, _ = server.accept()
        far = create_connection(("127.0.0.1", port))
        for source, other in ((near, far), (far, near)):
            source.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
            _Pipe(source, other, delay_ms / 1000)


class _Pipe:
    """Passes bytes on from one socket to another, late."""

    def __init__(self, source: socket, target: socket, delay_s: float) -> None:
        self._source, self._target, self._delay_s = source, target, delay_s
        self._packets: deque[tuple[float, bytes]] = deque()
        self._changed = Condition()
        for work in (self._read, self._write):
            Thread(target=work, daemon=True).start()

    def _read(self) -> None:
        data = b"some"
        while data:
            data = b""
            with suppress(OSError):
                data = self._source.recv(1 << 20)
            with self._changed:
                self._packets.append((monotonic() + self._delay_s, data))
                self._changed.notify()

    def _write(self) -> None:
        data = b"some"
        while data:
            with self._changed:
                self._changed.wait_for(lambda: self._packets)
                at, data = self._packets.popleft()
            sleep(max(at - monotonic(), 0))
            with suppress(OSError):
                self._target.sendall(data) if data else self._target.shutdown(SHUT_WR)


if __name__ == "__main__":
    main(prog_name="python -m tests.bench.targets.spark_sending")
