"""Hears which running tasks of this process are to stop: a thread with a subscription for each of them."""

import os
from collections.abc import Iterable
from contextlib import ExitStack
from threading import Event, Lock, Thread
from time import monotonic, sleep
from typing import Any

import redis
from kombu.log import get_logger
from redis.exceptions import NoPermissionError

from celery_ext.connection import open_store, patient_options
from celery_ext.stopping.store import StopStore
from kombu_delayq.background import Outage
from kombu_delayq.channel import DelayedChannel
from kombu_delayq.errors import OtherTransport
from kombu_delayq.text import as_bytes

logger = get_logger(__name__)

#: After so long at most the thread sees tasks that have begun, in s.
TURN_S = 0.05
#: For how long the thread keeps its connection without such a task, in s.
IDLE_S = 60.0
#: How often Redis is asked for a sign, in s, and how long it may take: see ``kombu_delayq.consume``.
PING_S, ANSWER_S = 15.0, 2.5


class RunningTask:
    """A task that runs in this process and has asked whether it is to stop.

    Attributes:
        id: Its id.
        runs: How often it runs here now: a message may come twice.
        is_cancelled: Whether it is to stop because it was cancelled.
    """

    __slots__ = ("id", "is_cancelled", "runs")

    def __init__(self, task_id: str) -> None:
        self.id, self.runs, self.is_cancelled = task_id, 0, False


class Listener:
    """The running tasks of an app in this process, and the thread that hears which of them are cancelled.

    Args:
        app: The app.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._lock = Lock()
        self._running: dict[str, RunningTask] = {}
        self._has_tasks = Event()
        self._thread: Thread | None = None

    def add(self, task_id: str) -> RunningTask:
        """Listens for a task that runs from now on. It is subscribed a moment later."""
        with self._lock:
            running = self._running.setdefault(task_id, RunningTask(task_id))
            running.runs += 1
            self._has_tasks.set()
            if self._thread is None:
                self._thread = Thread(target=self._listen, name="delayq-stop", daemon=True)
                self._thread.start()
        return running

    def remove(self, running: RunningTask) -> None:
        """Forgets a task that has ended."""
        with self._lock:
            running.runs -= 1
            if not running.runs:
                del self._running[running.id]
            if not self._running:
                self._has_tasks.clear()

    def _listen(self) -> None:
        outage = Outage(logger, "running tasks can be asked to stop again, after %.1f s")
        while True:
            self._has_tasks.wait()
            try:
                self._connect_and_listen(outage)
            except OtherTransport:
                return  # nobody can cancel a task there
            except NoPermissionError as error:
                logger.warning("Redis forbids the channels by which running tasks are asked to stop: %s", error)
                return
            except Exception as error:  # whatever has failed, the next attempt may not
                sleep(outage.failed(f"running tasks cannot be asked to stop: {type(error).__name__}: {error}"))

    def _connect_and_listen(self, outage: Outage) -> None:
        options = patient_options(self._app.conf.broker_transport_options, hurried=True)
        with ExitStack() as cleanup:
            connection = cleanup.enter_context(self._app.connection_for_read(transport_options=options))
            store = open_store(connection, pool=DelayedChannel.own_pool)
            cleanup.callback(store.close)
            part = store.part(StopStore)
            subscriptions = Subscriptions(part)
            cleanup.callback(subscriptions.close)
            while True:
                with self._lock:
                    wanted = {part.channel(task_id): running for task_id, running in self._running.items()}
                subscriptions.follow(wanted)
                if not wanted and not self._has_tasks.wait(IDLE_S):
                    return
                if (channel := subscriptions.next()) in wanted:
                    wanted[channel].is_cancelled = True
                outage.succeeded()


class Subscriptions:
    """Subscriptions of one thread to the channels of tasks, over a connection whose end it notices.

    Args:
        part: Where the channels are.
    """

    def __init__(self, part: StopStore) -> None:
        self._part, self._node = part, part.node
        self._pubsub = part.subscriptions()
        self._channels: set[bytes] = set()
        self._heard_at = self._asked_at = monotonic()

    def close(self) -> None:
        """Ends them."""
        self._pubsub.close()

    def follow(self, channels: Iterable[bytes]) -> None:
        """Subscribes to these channels and no others."""
        wanted = {*channels}
        if new := wanted - self._channels:
            self._pubsub.subscribe(*sorted(new))
        if old := self._channels - wanted:
            self._pubsub.unsubscribe(*sorted(old))
        self._channels = wanted

    def next(self) -> bytes | None:
        """Waits a moment for a message. Returns its channel; None without one.

        Raises:
            redis.exceptions.RedisError, OSError: The connection is lost, or the channels have moved to another node.
        """
        message = self._pubsub.get_message(timeout=TURN_S)
        now = monotonic()
        if message is not None:
            self._heard_at = now
            return as_bytes(message["channel"]) if message["type"] == "message" else None
        if self._asked_at > self._heard_at and now - self._asked_at > ANSWER_S:
            raise redis.TimeoutError("Redis does not answer over a subscription")
        if now - max(self._asked_at, self._heard_at) > PING_S:
            self._asked_at = now
            self._pubsub.ping()
        if self._part.node is not self._node:
            raise redis.ConnectionError("the channels have moved to another node")
        return None


_listeners: dict[int, Listener] = {}
_making = Lock()


def listener_of(app: Any) -> Listener:
    """Returns the listener of an app in this process."""
    with _making:
        found = _listeners.get(id(app))
        if found is None or found._app is not app:
            found = _listeners[id(app)] = Listener(app)
        return found


def _begin_anew() -> None:
    """Forgets the listeners of the process from which this one was forked: their threads are not here."""
    global _making
    _making = Lock()
    _listeners.clear()


os.register_at_fork(after_in_child=_begin_anew)
