"""How soon what a killed worker held runs again with BlitzQ and potatoq, at their defaults; ours is `targets/back.py`.

They need Python 3.12: ``pip install blitzq==1.1.0 potatoq==26.1a8 redis psutil``, then
``python tests/bench/returns.py blitzq potatoq --kills 5 --server redis-server``.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from statistics import median

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

#: The list in which runs are noted; the port of Redis; messages that the worker that dies holds.
RUNS, PORT, HELD = "bench:runs", "BENCH_PORT", 2
URL = f"redis://127.0.0.1:{os.environ.get(PORT)}/0"
COMMANDS = {
    "blitzq": ["-m", "blitzq", "worker", "returns:queue", "--concurrency", "2"],
    "potatoq": ["-m", "potatoq", "-A", "returns:app", "worker", "-c", "2"],
}


def note_and_hold() -> None:
    """Notes a run. The first ones, as many as the worker that dies can hold, do not end."""
    client = redis.Redis.from_url(URL)
    count = client.rpush(RUNS, time.time())
    if count <= HELD:
        time.sleep(600)


if os.environ.get(PORT) and "blitzq" in sys.argv[0]:
    from blitzq import Queue

    queue = Queue("default", redis_url=URL)
    hold = queue.task(name="hold")(note_and_hold)
elif os.environ.get(PORT) and "potatoq" in sys.argv[0]:
    from potatoq import Potatoq

    app = Potatoq("returns", broker=URL)
    hold = app.task(name="hold")(note_and_hold)


def _run(args: list[str]) -> subprocess.Popen[bytes]:
    here = os.path.dirname(os.path.abspath(__file__))
    return subprocess.Popen(
        [sys.executable, *args],
        cwd=here,
        env={**os.environ, "PYTHONPATH": here},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    ends_at = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > ends_at:
            sys.exit(f"not within {timeout_s} s: {what}")
        time.sleep(0.02)


SENDERS = {
    "blitzq": "from blitzq import Queue; import returns as r\n"
    "q = Queue('default', redis_url=r.URL); t = q.task(name='hold')(r.note_and_hold); t.enqueue_sync()",
    "potatoq": "from potatoq import Potatoq; import returns as r\n"
    "a = Potatoq('returns', broker=r.URL); a.task(name='hold')(r.note_and_hold).delay()",
}


def _send(name: str, count: int) -> None:
    for _ in range(count):
        assert _run(["-c", SENDERS[name]]).wait(30) == 0


def _return_s(name: str, client: redis.Redis) -> float:
    client.flushall()
    doomed = _run(COMMANDS[name])
    other = None
    try:
        _send(name, HELD)
        _until(lambda: client.llen(RUNS) >= HELD, 60, "the worker that dies holds its messages")
        other = _run(COMMANDS[name])
        _send(name, 1)
        _until(lambda: client.llen(RUNS) > HELD, 60, "the worker that lives takes what the other cannot")
        os.killpg(doomed.pid, signal.SIGKILL)
        killed = time.time()
        _until(lambda: client.llen(RUNS) > 2 * HELD, 400, "what it held runs again")
        return float(client.lindex(RUNS, -1)) - killed
    finally:
        for process in (doomed, other):
            if process is not None:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def main() -> None:
    """Prints the median and the longest time for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=COMMANDS)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--server", default="redis-server")
    options = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ[PORT] = str(port)
    with tempfile.TemporaryDirectory() as directory:
        server = subprocess.Popen(
            [options.server, "--port", str(port), "--dir", directory, "--save", ""], stdout=subprocess.DEVNULL
        )
        client = redis.Redis(port=port, retry=Retry(ConstantBackoff(0.1), 50))
        try:
            for name in options.names:
                took = [_return_s(name, client) for _ in range(options.kills)]
                times = f"median {median(took):.1f} s, longest {max(took):.1f} s"
                print(f"{name} {version(name)}: {times}, {options.kills} kills")
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
