"""How many tasks a second ``delayq serve`` enqueues over HTTP: one a request, and by batches."""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

import psutil

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve.access.identity import Action
from celery_ext.serve.access.tokens import Token, hash_of, new_secret, write_tokens
from tests.bench.targets.app import TASK
from tests.bench.targets.report import Figure

#: Connections that send requests, each the next one when it has its answer.
CLIENTS, BATCH_CLIENTS = 50, 8
#: Tasks in a batch, and the arguments of each.
BATCH, ARGS = 500, [1_790_000_000.123456, "x" * 100]


def measure(server: PrivateRedis, quick: bool) -> Iterator[Figure]:
    """Enqueues tasks with a countdown from this process, on a server in another, with keep-alive and a token."""
    requests, batches = (3_000, 20) if quick else (20_000, 200)
    task = {"task": TASK, "args": ARGS, "countdown": 3600}
    with serving(server.url) as (url, secret, process):
        for name, path, body, clients, count, target in (
            ("POST /v1/tasks", "/v1/tasks", task, CLIENTS, requests, 1_000),
            ("POST /v1/tasks:batch", "/v1/tasks:batch", {"tasks": [task] * BATCH}, BATCH_CLIENTS, batches, 5_000),
        ):
            asyncio.run(load(url, path, secret, body, clients, max(count // 10, clients)))  # warms up
            client = server.client()
            client.flushall()
            begun, cpu_s = perf_counter(), sum(process.cpu_times()[:2])
            slow_ms = asyncio.run(load(url, path, secret, body, clients, count))
            tasks, took_s = client.zcard("delayq:{celery}:due"), perf_counter() - begun
            cpu_s = sum(process.cpu_times()[:2]) - cpu_s
            note = f"{count:,} requests over {clients} connections, each with a token; tasks of {BATCH} a batch"
            yield Figure(name, tasks / took_s, "tasks/s", target, at_least=True, note=note)
            yield Figure(f"{name}, 99 % within", slow_ms, "ms")
            yield Figure(f"{name}, CPU time of the server", cpu_s / tasks * 1e6, "µs/task")


@contextmanager
def serving(broker_url: str) -> Iterator[tuple[str, str, psutil.Process]]:
    """Starts ``delayq serve``. Yields its URL, a token that may do all, and the process."""
    secret = new_secret()
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.json"
        write_tokens(tokens, [Token("bench", hash_of(secret), frozenset(Action), ("*",), ("*",))])
        options = ["serve", "--port", "0", "--allow-write", "--tokens", str(tokens), "-l", "warning"]
        process = subprocess.Popen(
            [sys.executable, "-c", "from celery_ext.cli import main; main()", "--broker", broker_url, *options],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[2], secret, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(20)


async def load(url: str, path: str, secret: str, body: object, clients: int, count: int) -> float:
    """Sends requests. Returns the time in ms within which 99 % had their answer.

    Raises:
        RuntimeError: An answer is no success.
    """
    at, raw = urlsplit(url), json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {at.netloc}\r\nAuthorization: Bearer {secret}\r\n"
    request = f"{head}Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw
    left, took = iter(range(count)), list[float]()

    async def one() -> None:
        reader, writer = await asyncio.open_connection(at.hostname, at.port, limit=2**22)
        for _ in left:
            begun = perf_counter()
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            if not answer.startswith(b"HTTP/1.1 20"):
                raise RuntimeError(answer.decode(errors="replace"))
            length = int(answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            took.append(perf_counter() - begun)
        writer.close()

    await asyncio.gather(*(one() for _ in range(clients)))
    return sorted(took)[int(len(took) * 0.99)] * 1000
