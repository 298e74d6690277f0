"""A publisher that publishes to each of its queues at a steady rate, each in a thread of its own.

A queue that cannot be published to does not delay the others. What raised an error is published again, with the same
id.
Every fifth task is delayed. SIGTERM ends the publisher after the calls in hand.
"""

import signal
import time
from threading import Event, Thread

from tests.chaos.fleet.app import eta_of, make_app
from tests.chaos.fleet.publisher import FAILURES, PAUSE_S, TASKS, Planned
from tests.chaos.fleet.setup import Setup
from tests.chaos.ledger.events import Ledger

#: Every so many tasks one is delayed, by so long, in s.
EVERY, DELAY_S = 5, 0.5
#: How much a publisher that was held up catches up, in s.
CATCH_UP_S = 0.5


class Steady:
    """Publishes to one queue until it is stopped."""

    def __init__(self, setup: Setup, number: int, stopping: Event) -> None:
        self._queue, self._name = setup.queues[number], f"{setup.name}.{number}"
        self._pause_s = len(setup.queues) / setup.rate
        self._stopping = stopping
        self._app = make_app(setup)
        self._ledger = Ledger(setup.ledger, self._name, setup.by)

    def run(self) -> None:
        """Publishes."""
        count, next_at = 0, time.monotonic()
        while not self._stopping.wait(max(0.0, next_at - time.monotonic())):
            next_at = max(next_at + self._pause_s, time.monotonic() - CATCH_UP_S)
            count += 1
            due = 0.0 if count % EVERY else round(time.time() + DELAY_S, 3)
            self._publish(Planned(f"{self._name}.{count}", "delayed" if due else "plain", self._queue, 0, due))

    def _publish(self, task: Planned) -> None:
        self._ledger.write_many([task.intent()])
        eta = {"eta": eta_of(task.due)} if task.due else {}
        while True:
            try:
                self._app.send_task(TASKS[task.kind], task_id=task.id, queue=task.queue, retry=False, **eta)
                break
            except FAILURES:
                self._ledger.write_many([f"E {task.id} {time.time()!r}"])
                time.sleep(PAUSE_S)
        self._ledger.write_many([f"C {task.id} {time.time()!r}"])


def main() -> None:
    """Runs the publisher of this process's setup."""
    stopping = Event()
    signal.signal(signal.SIGTERM, lambda signum, frame: stopping.set())
    setup = Setup.of_environment()
    threads = [Thread(target=Steady(setup, number, stopping).run) for number in range(len(setup.queues))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
