"""Runs what is due: in the process of the test, or by the worker that the test has started."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Condition
from typing import Any, NamedTuple

from celery.exceptions import Reject
from celery.signals import task_failure, task_internal_error, task_postrun, task_revoked, task_unknown
from celery.worker import state as worker_state
from celery.worker.strategy import proto1_to_proto2
from kombu.message import Message
from kombu.utils.imports import symbol_by_name

from celery_ext.limits import LIMIT_HEADER, Backoff
from celery_ext.testing.apps import active_apps
from celery_ext.testing.brokers import Broker
from celery_ext.testing.sending import Sending
from celery_ext.testing.turns import Turns, key_of
from celery_ext.waiting import DelayedTask
from kombu_delayq.errors import DelayqError, did_you_mean
from kombu_delayq.message import with_eta
from kombu_delayq.store import Change

#: An expiry that is past.
EXPIRED = "2000-01-01T00:00:00+00:00"


class UnknownTask(DelayqError, LookupError):
    """A task is due of which no app in the test's process knows."""


class Ran(NamedTuple):
    """A task that has run. Its repr is that of a call.

    Attributes:
        name: Name of the task.
        id: Its id.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        state: How it ended: ``SUCCESS``, ``FAILURE``, ``RETRY``, ``IGNORED``, ``REJECTED`` or ``REVOKED``, which it
            also is when it has expired.
        result: What it returned; after a failure the exception.
        limit: The key of its limit, such as ``account:7``; empty for none.
    """

    name: str
    id: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    state: str
    result: Any
    limit: str = ""

    def __repr__(self) -> str:
        given = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"<{self.name}({', '.join(given)}) {self.state}>"


class Runs:
    """Listens to Celery's signals, in this process and all of its threads, and notes each run.

    Attributes:
        all: The runs, in the order in which they ended.
        errors: Errors of tasks that have failed for good, which nobody has raised yet.
    """

    def __init__(self) -> None:
        self.all: list[Ran] = []
        self.errors: list[BaseException] = []
        self._ended = Counter[str]()
        self._requeued = dict[str, Reject | Backoff]()
        self._change = Condition()
        self._signals = (
            (task_postrun, self._note_run),
            (task_failure, self._note_failure),
            (task_internal_error, self._note_failure),
            (task_revoked, self._note_revoked),
            (task_unknown, self._note_unknown),
        )

    def listen(self) -> None:
        """Begins to listen."""
        for signal, receiver in self._signals:
            signal.connect(receiver, weak=False, dispatch_uid=(id(self), id(signal)))

    def close(self) -> None:
        """Ends listening."""
        for signal, _ in self._signals:
            signal.disconnect(dispatch_uid=(id(self), id(signal)))

    def ended(self, task_id: str) -> int:
        """Returns how many runs of a task have ended, but for those whose message goes back to its queue."""
        return self._ended[task_id]

    def await_ended(self, runs: Callable[[], Mapping[str, int]], timeout_s: float) -> set[str]:
        """Waits, `timeout_s` at most, until so many runs of tasks have ended.

        Returns the ids of those that have not. runs: Asked again after each run, which may add some.
        """

        def late() -> set[str]:
            return {task_id for task_id, count in runs().items() if self._ended[task_id] < count}

        with self._change:
            self._change.wait_for(lambda: not late(), timeout_s)
            return late()

    def take_error(self) -> BaseException | None:
        """Returns the first error that nobody has raised yet, and forgets all."""
        errors, self.errors = self.errors, []
        return errors[0] if errors else None

    def take_requeued(self, task_id: str) -> Reject | Backoff | None:
        """Returns why the message of a task goes back to its queue, and forgets it; None if it does not."""
        return self._requeued.pop(task_id, None)

    def _note_run(
        self, sender: Any, task_id: str, args: Any, kwargs: Any, retval: Any, state: str | None, **more: Any
    ) -> None:
        result = getattr(retval, "exception", retval) if state != "SUCCESS" else retval
        # Without acks_late the message was acknowledged before the run, so that nobody can reject it.
        rejected = isinstance(result, Reject) and result.requeue and sender.acks_late
        limit = (sender.request.headers or {}).get(LIMIT_HEADER) or ""
        ran = Ran(sender.name, task_id, tuple(args), dict(kwargs), state or "UNKNOWN", result, limit)
        self._note(ran, why=result if rejected or isinstance(result, Backoff) else None)

    def _note_failure(self, sender: Any, exception: BaseException, **more: Any) -> None:
        if isinstance(exception, BaseException):
            self.errors.append(exception)

    def _note_revoked(self, sender: Any, request: Any, **more: Any) -> None:
        if request.hostname is None:
            return  # it was cancelled while it waited: no worker has had it
        args, kwargs = getattr(request, "args", None) or (), getattr(request, "kwargs", None) or {}
        self._note(Ran(sender.name, request.id, tuple(args), dict(kwargs), "REVOKED", None))

    def _note_unknown(self, sender: Any, name: str, id: str, **more: Any) -> None:  # noqa: A002  # Celery's name
        error = UnknownTask(
            f"the worker of the test does not know the task {name!r}. If the test declares it, call "
            "celery_worker.reload() after that"
        )
        self.errors.append(error)
        self._note(Ran(name, id, (), {}, "REJECTED", error))

    def _note(self, ran: Ran, *, why: Reject | Backoff | None = None) -> None:
        with self._change:
            self.all.append(ran)
            if why is not None:
                self._requeued[ran.id] = why
            if not isinstance(why, Reject):
                self._ended[ran.id] += 1
            self._change.notify_all()


def run(
    message: Message, app: Any, *, expired: bool | None, revoked: bool = False, extend: Callable[[Any], None]
) -> None:
    """Runs the task of a message.

    Args:
        message: The message, as a consumer gets it.
        app: The app that sent it, if it is known.
        expired: Whether it has expired; None for a task that does not expire.
        revoked: Whether its id was revoked. It ends as revoked then, and does not run.
        extend: Called with the app that runs it.

    Raises:
        UnknownTask: No app of the process has the task.
    """
    body, headers, decoded, utc = None, message.headers, False, True
    if "task" not in headers:
        body, headers, decoded, utc = proto1_to_proto2(message, message.payload)
    if expired is not None:
        headers = {**headers, "expires": EXPIRED if expired else None}
    app = app_of(headers["task"], app)
    extend(app)
    task = app.tasks[headers["task"]]
    trace = task.__trace__
    task.__trace__ = None  # what a worker has prepared knows the result backend of the worker
    make = symbol_by_name(task.Request)
    request = make(message, app=app, task=task, body=body, headers=headers, decoded=decoded, utc=utc)
    if revoked:
        worker_state.revoked.add(request.id)
    try:
        request.execute()
    finally:
        task.__trace__ = trace
        # The next test may use the id again. An expired task is noted there, too.
        worker_state.revoked.discard(request.id)


def app_of(name: str, app: Any) -> Any:
    """Returns an app that has a task: the one given, if it has it.

    Raises:
        UnknownTask: No app of the process has the task.
    """
    apps = [app, *active_apps()] if app is not None else active_apps()
    found = next((one for one in apps if name in one.tasks), None)
    if found is None:
        known = {task for one in apps for task in one.tasks}
        raise UnknownTask(
            f"the task {name!r} is due, but no app in this process has it{did_you_mean(name, known)}. "
            "Import the module of the task in the test"
        )
    return found


#: How long a worker may take for a task, in s.
WORKER_S = 30.0


class WorkerSilent(DelayqError, TimeoutError):
    """A worker of the test did not run a task that it was given."""


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
        #: Which of the messages may run.
        self.turns = Turns(sending.clock.still_s)

    def run_ready(self, propagate: bool, check_end: Callable[[], None]) -> None:
        """Runs what was sent without a delay, and what that sends without a delay, as far as limits allow.

        Args:
            propagate: Whether to raise the error of a task that fails.
            check_end: Called now and then; raises if there is no end of tasks.
        """
        with self._in_turns():
            while messages := self._broker.ready():
                check_end()
                for queue, message in messages:
                    self._add(queue, message)
                while (found := self.turns.take()) is not None:
                    self._run(*found, propagate)

    def run(self, task: DelayedTask, propagate: bool) -> None:
        """Takes a task that waits, and runs it. If its limit does not allow that now, it waits in its queue."""
        with self._in_turns():
            if self._broker.take(task.message):
                self._add(task.queue, self._broker.message(task.body))
                if (found := self.turns.take()) is not None:
                    self._run(*found, propagate)

    @contextmanager
    def _in_turns(self) -> Iterator[None]:
        try:
            yield
        finally:
            for queue, message in self.turns.leave():
                self._broker.put_back(queue, message)

    def _add(self, queue: str, message: Message) -> None:
        with suppress(UnknownTask):  # which the run of the task says
            app = app_of(str(message.headers.get("task")), self._app_of(message))
            return self.turns.add(queue, message, app.conf.broker_transport_options.get("limits") or {})
        return self.turns.add(queue, message, {})

    def _app_of(self, message: Message) -> Any:
        call = self._sending.sent.get(str(message.properties.get("correlation_id")))
        return None if call is None else call.app()

    def _run(self, queue: str, message: Message, propagate: bool) -> None:
        task_id, app = str(message.properties.get("correlation_id")), self._app_of(message)
        expired = self._sending.is_expired(task_id, message.headers.get("expires"))
        self._runs.take_error()
        run(message, app, expired=expired, revoked=task_id in self._sending.revoked, extend=self._extend)
        why = self._runs.take_requeued(task_id)
        if why is not None:
            self._sending.note_requeued(message.headers.get("task"))
            self._give_back(queue, message, why)
        _raise(self._runs, propagate)

    def _give_back(self, queue: str, message: Message, why: Reject | Backoff) -> None:
        if not isinstance(why, Backoff):
            self._broker.requeue(queue, message)
        elif key_of(message):
            self.turns.rest(queue, message, why.seconds)
            self._broker.put_back(queue, message)
        else:
            self._broker.delay(queue, message, why.seconds)


class ByWorker:
    """Hands tasks to a worker in another thread, and waits for it.

    Args:
        broker: Where they wait, and what the worker consumes.
        sending: What the apps have sent.
        runs: What has run.
    """

    def __init__(self, broker: Broker, sending: Sending, runs: Runs) -> None:
        self._broker, self._sending, self._runs = broker, sending, runs
        #: Nothing is held back here: the worker decides.
        self.turns = Turns(sending.clock.still_s)

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
