"""Who runs what is due: the test's process itself, or the worker that the test has started."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from celery_ext.testing.brokers import Broker
from celery_ext.testing.running import EXPIRED, Runs, run
from celery_ext.testing.sending import Sending
from celery_ext.waiting import DelayedTask
from kombu_delayq.errors import DelayqError
from kombu_delayq.message.rewrite import with_eta
from kombu_delayq.store.lookup import Change

#: How long a worker may take for a task, in s.
WORKER_S = 30.0


class WorkerSilent(DelayqError, TimeoutError):
    """A worker of the test did not run a task that it was given."""


class Runner(Protocol):
    """Runs tasks that are due."""

    def run_ready(self, propagate: bool, check_end: Callable[[], None]) -> None:
        """Runs what was sent without a delay.

        Args:
            propagate: Whether to raise the error of a task that fails.
            check_end: Called now and then; raises if there is no end of tasks.
        """

    def run(self, task: DelayedTask, propagate: bool) -> None:
        """Runs a task that waits. propagate: Whether to raise its error if it fails."""


class InThisProcess:
    """Runs tasks in the process and the thread of the test.

    Args:
        broker: Where they wait.
        sending: What the apps have sent.
        runs: What has run.
        extend: Called with each app that runs a task.
    """

    def __init__(self, broker: Broker, sending: Sending, runs: Runs, extend: Callable[[Any], None]) -> None:
        self._broker, self._sending, self._runs, self._extend = broker, sending, runs, extend

    def run_ready(self, propagate: bool, check_end: Callable[[], None]) -> None:
        """Runs what was sent without a delay, and what that sends without a delay."""
        while messages := self._broker.ready():
            check_end()
            for message in messages:
                self._run(message, propagate)

    def run(self, task: DelayedTask, propagate: bool) -> None:
        """Takes a task that waits, and runs it."""
        if self._broker.take(task.message):
            self._run(self._broker.message(task.body), propagate)

    def _run(self, message: Any, propagate: bool) -> None:
        task_id = str(message.properties.get("correlation_id"))
        call = self._sending.sent.get(task_id)
        app = None if call is None else call.app()
        expired = self._sending.is_expired(task_id, message.headers.get("expires"))
        self._runs.take_error()
        run(message, app, expired=expired, extend=self._extend)
        _raise(self._runs, propagate)


class ByWorker:
    """Hands tasks to a worker in another thread, and waits for it.

    Args:
        broker: Where they wait, and what the worker consumes.
        sending: What the apps have sent.
        runs: What has run.
    """

    def __init__(self, broker: Broker, sending: Sending, runs: Runs) -> None:
        self._broker, self._sending, self._runs = broker, sending, runs

    def run_ready(self, propagate: bool, check_end: Callable[[], None]) -> None:
        """Waits for the worker, which runs what was sent without a delay."""

        def sent() -> Mapping[str, int]:
            check_end()
            return Counter(self._sending.immediate)

        self._await(sent)
        _raise(self._runs, propagate)

    def run(self, task: DelayedTask, propagate: bool) -> None:
        """Pushes a task that waits to its queue, and waits until the worker has run it."""
        message, ended = task.message, self._runs.ended(task.id)
        change = Change(message, message.due_ms, self._pushed(task))
        if self._broker.store.lookup.run_now(message.queue, [change]) == ["transferred"]:
            self._await(lambda: {task.id: ended + 1})
        _raise(self._runs, propagate)

    def _pushed(self, task: DelayedTask) -> bytes:
        """Returns the message of a task as the worker gets it: without an eta, by which it would look at its clock."""
        body = json.loads(with_eta(task.message.body or b"", None))
        headers = body["headers"]
        if self._sending.is_expired(task.id, headers.get("expires")):
            headers["expires"] = EXPIRED
        return json.dumps(body).encode()

    def _await(self, runs: Callable[[], Mapping[str, int]]) -> None:
        late = self._runs.await_ended(runs, WORKER_S)
        if late:
            raise WorkerSilent(
                f"the worker has not run {', '.join(sorted(late))} in {WORKER_S:.0f} s. Does it consume their queues?"
            )


def _raise(runs: Runs, propagate: bool) -> None:
    """Raises the first error of a task that has failed for good, if wanted."""
    error = runs.take_error()
    if propagate and error is not None:
        raise error
