"""Three notifications from the first call to the last, at a thousandth of the time: ``python run.py``.

Starts a private Redis, a worker and the merchants, and ends them again. Exit code 0 means that all went as the
README says.
"""

import argparse
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any, NamedTuple

from receiver import Call, Receiver

import celery_ext
from celery_ext import DelayChain
from celery_ext.demo.private_redis import PrivateRedis

#: How long the worker may take to start and to end, and a call to come after its time, in s.
PATIENCE_S = 40.0
#: By how much a call may seem to be early, because the time between calls is measured by another clock than Redis's.
CLOCKS_S = 0.01
#: How many times a notification has been retried that waits for the step of 6 hours.
BEFORE_CANCEL = 6


class End(NamedTuple):
    """How a notification ended: what the merchant was asked and what became of the task."""

    calls: int
    state: str


#: How each has to end: P-1 is accepted at the fourth call, P-2 cancelled after the sixth, P-3 never accepted.
EXPECTED = {"P-1": End(4, "SUCCESS"), "P-2": End(6, "REVOKED"), "P-3": End(8, "FAILURE")}


class Diary:
    """What happens, printed and kept."""

    def __init__(self) -> None:
        self.calls: dict[str, list[Call]] = {payment: [] for payment in EXPECTED}
        self._start = monotonic()

    def called(self, call: Call) -> None:
        """Prints a call, with the time since the one before it."""
        calls = self.calls[call.payment]
        after = f" after {call.at - calls[-1].at:.2f} s" if calls else ""
        calls.append(call)
        self.say(f"{call.payment}  call {call.number}{after}: {call.merchant} says {call.answer}")

    def say(self, text: str) -> None:
        """Prints a line, with the time since the start."""
        print(f"{monotonic() - self._start:6.2f} s  {text}", flush=True)

    def early(self, chain: DelayChain) -> int:
        """Counts the calls that came before the chain's step was over."""
        return sum(
            call.at - before.at < step.total_seconds() - CLOCKS_S
            for calls in self.calls.values()
            for before, call, step in zip(calls, calls[1:], chain, strict=False)
        )


def main(speed_up: float) -> bool:
    """Runs everything. Returns whether all went as it should."""
    with PrivateRedis() as redis:
        os.environ["PAYMENTS_REDIS"] = f"redis://127.0.0.1:{redis.port}"
        os.environ["PAYMENTS_SPEED_UP"] = str(speed_up)
        import payments  # reads both

        chain = DelayChain.parse(payments.notify.delay_chain)
        print(f"private Redis on port {redis.port}; starting a worker …", flush=True)
        with worker(redis.directory / "worker.log"):
            print(f"{payments.STEPS} is {chain} today, in all {chain.total.total_seconds():.1f} s\n", flush=True)
            diary = Diary()
            with merchants(diary) as receiver:
                ends = notify_all(payments, receiver, chain, diary)
            letters = dead_letters(payments)
            gc.collect()  # a result unsubscribes when it is collected, and Redis must be there then
        payments.app.close()
    print(
        "\npayment   calls  result\n" + "\n".join(f"{name:8}  {end.calls:5}  {end.state}" for name, end in ends.items())
    )
    print(f"{diary.early(chain)} calls too early; dead letters of {', '.join(letters) or 'nobody'}")
    return ends == EXPECTED and not diary.early(chain) and letters == ["P-3"]


def notify_all(payments: Any, receiver: Receiver, chain: DelayChain, diary: Diary) -> dict[str, End]:
    """Sends three notifications, cancels one of them, and waits for the ends. Returns those by payment."""
    results = {
        "P-1": payments.notify.delay("P-1", 1990, receiver.url("bakery", refuse=3)),
        "P-2": payments.notify.delay("P-2", 4500, receiver.url("bookshop")),
        "P-3": payments.notify.delay("P-3", 1250, receiver.url("florist")),
    }
    patience_s = chain.total.total_seconds() + PATIENCE_S
    await_retries(payments, results["P-2"].id, BEFORE_CANCEL, patience_s)
    outcome = celery_ext.cancel(payments.app, results["P-2"].id)
    diary.say(f"P-2  is {outcome}: the customer has withdrawn the payment")
    for result in results.values():
        result.get(timeout=patience_s, propagate=False)
    return {payment: End(len(diary.calls[payment]), result.state) for payment, result in results.items()}


def await_retries(payments: Any, task_id: str, retries: int, patience_s: float) -> None:
    """Waits until a notification waits for its next call, after some retries."""
    deadline = monotonic() + patience_s
    while monotonic() < deadline:
        task = celery_ext.get(payments.app, task_id)
        if task is not None and task.retries >= retries:
            return
        sleep(0.02)
    raise SystemExit(f"task {task_id} did not wait after {retries} retries")


def dead_letters(payments: Any) -> list[str]:
    """Prints why notifications are dead letters, and leaves them where they are. Returns their payments."""
    with payments.app.connection_for_read() as connection, connection.SimpleQueue(payments.UNDELIVERED) as queue:
        messages = [queue.get(timeout=PATIENCE_S) for _ in range(queue.qsize())]
        for message in messages:
            message.requeue()
    found = []
    for message in messages:
        (payment, *_), _, _ = message.payload
        reason = message.properties["dead_letter"]
        print(f"\nqueue {payments.UNDELIVERED!r} has {payment}: {reason['reason']}, {reason['error']}")
        found.append(payment)
    return found


@contextmanager
def merchants(diary: Diary) -> Iterator[Receiver]:
    """Runs the merchants in a thread."""
    with Receiver(0, diary.called) as receiver:
        thread = Thread(target=receiver.serve_forever)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
            thread.join()


@contextmanager
def worker(log: Path) -> Iterator[None]:
    """Runs a worker that is ready."""
    command = [sys.executable, "-m", "celery", "-A", "payments", "worker", "--concurrency", "2", "--loglevel", "INFO"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=Path(__file__).parent, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = monotonic() + PATIENCE_S
        while b" ready." not in log.read_bytes():
            if process.poll() is not None or monotonic() > deadline:
                raise SystemExit(f"the worker did not start:\n{log.read_text(errors='replace')[-2000:]}")
            sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--speed-up", type=float, default=1000, metavar="N", help="how many times faster (default 1000)"
    )
    arguments = parser.parse_args()
    # So that whatever was started is ended also when this is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    good = main(arguments.speed_up)
    print("all as the README says" if good else "NOT as the README says")
    sys.exit(0 if good else 1)
