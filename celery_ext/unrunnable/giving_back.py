"""Gives back what a worker cannot run, so that another one may, and buries it once nobody could for long enough.

Celery acknowledges such messages: in each deploy in which publishers are ahead of workers, tasks are gone.
"""

from random import uniform
from time import monotonic
from typing import TYPE_CHECKING, Any

from celery import signals
from celery.exceptions import NotRegistered
from celery.utils.objects import Bunch
from celery.worker.consumer import Consumer
from kombu.log import get_logger
from redis.exceptions import ResponseError

from kombu_delayq.consume import FetchedMessage, FetchedPayload
from kombu_delayq.message import Due, Reason, properties_of, text_of, to_json, unrunnable
from kombu_delayq.store import Requeued

# A base only for the type checker: the class is mixed into Celery's consumer.
_Consumer: Any = Consumer if TYPE_CHECKING else object

logger = get_logger(__name__)

#: Message property: since when workers could not run a message, ms since the epoch, and how many could not.
TRIED = "unrunnable"
#: Pauses until a message that went back may be taken again, in s: the first one, which doubles, and the longest. Redis
#: serves the consumer that waits for longest, and each begins its wait anew after ten seconds: pauses that are shorter
#: than that, and of chance, lead a message to another consumer.
FIRST_S, LONGEST_S = 1.0, 5.0
#: How often the log says that messages of a task go back, in s.
SAID_S = 60.0


class PatientConsumer(_Consumer):
    """A mixin, to the left of Celery's consumer: it does not acknowledge what it cannot run."""

    def on_unknown_message(self, body: Any, message: Any) -> None:
        """Gives a message without a task back."""
        if not self._give_back(message, Reason.UNREADABLE, None):
            super().on_unknown_message(body, message)

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:
        """Gives the message of a task back that this worker does not know."""
        if not self._give_back(message, Reason.UNKNOWN_TASK, exc):
            super().on_unknown_task(body, message, exc)

    def on_invalid_task(self, body: Any, message: Any, exc: Exception) -> None:
        """Gives a message back that this worker does not accept, or that lacks what a task has."""
        if not self._give_back(message, Reason.UNREADABLE, exc):
            super().on_invalid_task(body, message, exc)

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Gives a message back whose body this worker cannot decode."""
        if not self._give_back(message, Reason.UNREADABLE, exc):
            super().on_decode_error(message, exc)

    def _give_back(self, message: Any, reason: Reason, error: Exception | None) -> bool:
        """Gives a message back, or buries it. Returns False where Celery's own way is the only one."""
        raw = getattr(message, "_raw", None)
        if not (isinstance(message, FetchedMessage) and isinstance(raw, FetchedPayload)):
            return False
        ttl_s = message.channel.options.unknown_ttl
        if ttl_s is None:
            return False
        store = message.channel.store
        now_ms = store.now_ms()
        since_ms, times = _tried(properties_of(raw).get(TRIED)) or (now_ms, 0)
        properties = {name: value for name, value in properties_of(raw).items() if name != TRIED}
        try:
            if now_ms - since_ms >= 1000 * ttl_s:
                self._bury(message, {**raw, "properties": properties}, reason, error, (now_ms - since_ms) / 1000)
            else:
                _put_off(message, {**raw, "properties": {**properties, TRIED: [since_ms, times + 1]}}, now_ms, times)
                self._say(message, reason, error)
        except ResponseError as refused:  # such as an ACL
            logger.error("a message that this worker cannot run stays in its hands until it stops: %s", refused)
        else:
            message.count("unknown")
            message.let_go()
            if reason is Reason.UNKNOWN_TASK and not times:  # the signal of Celery, once a message
                id_, name = (message.headers.get(field) for field in ("id", "task"))
                signals.task_unknown.send(sender=self, message=message, exc=error, name=name, id=id_)
        return True

    def _bury(self, message: Any, raw: Any, reason: Reason, error: Exception | None, tried_s: float) -> None:
        channel, queue = message.channel, message.channel.options.dead_letter_queue
        what = "no message of a task" if error is None else text_of(error)
        letter = unrunnable(raw, reason, f"{what}; no worker could run it for {tried_s:.0f} s", self.hostname, queue)
        priority = channel._get_message_priority(raw, reverse=False)
        row = Requeued(message.delivery_tag, queue, priority, to_json(letter))
        channel.store.queues.note_dead_letters(queue, 1)
        missing = channel.store.fetching.requeue([row], "last", fetched_from=message._raw.queue)
        if missing:
            return
        logger.error("a message that no worker could run is a dead letter in %r (%s): %s", queue, reason, what)
        if reason is Reason.UNKNOWN_TASK:
            self._fail(message)

    def _fail(self, message: Any) -> None:
        """Tells those who wait for the result of a task that no worker knows it, as Celery does at once."""
        headers = message.headers
        id_, name = headers.get("id"), headers.get("task")
        if not isinstance(id_, str):
            return
        request = Bunch(
            name=name,
            chord=None,
            root_id=headers.get("root_id"),
            correlation_id=message.properties.get("correlation_id"),
            reply_to=message.properties.get("reply_to"),
            errbacks=None,
        )
        self.app.backend.mark_as_failure(id_, NotRegistered(name), request=request)
        if self.event_dispatcher:
            self.event_dispatcher.send("task-failed", uuid=id_, exception=f"NotRegistered({name!r})")

    def _say(self, message: Any, reason: Reason, error: Exception | None) -> None:
        """Logs, once a task name and minute, that messages go back."""
        name = str((message.headers or {}).get("task"))[:100]
        said = self.__dict__.setdefault("_said_unrunnable", {})
        if monotonic() - said.get(name, -SAID_S) < SAID_S:
            return
        said[name] = monotonic()
        if reason is Reason.UNKNOWN_TASK:
            logger.error(
                "this worker does not know the task %r: its messages go back to queue %r for workers that do, and "
                "become dead letters after unknown_ttl. Was its module imported?",
                name,
                message._raw.queue,
            )
        else:
            logger.error(
                "this worker cannot read a message of queue %r (%s): it goes back for workers that can, and becomes a "
                "dead letter after unknown_ttl",
                message._raw.queue,
                "it has no task" if error is None else text_of(error),
            )


def _put_off(message: Any, raw: Any, now_ms: float, times: int) -> None:
    """Puts a message into the store for a pause, which grows with each worker that could not run it."""
    channel = message.channel
    pause_s = min(FIRST_S * 2 ** min(times, 10), LONGEST_S) * uniform(0.5, 1.0)
    task_id = (message.headers or {}).get("id")
    due = Due(now_ms + 1000 * pause_s, relative=False, task_id=task_id if isinstance(task_id, str) else None)
    channel.put_off(message._raw.queue, raw, due, message.delivery_tag)


def _tried(given: Any) -> tuple[float, int] | None:
    """Returns what ``_put_off`` has noted in a message; None where nobody has, or somebody else."""
    if not isinstance(given, list) or len(given) != 2 or any(isinstance(value, bool) for value in given):
        return None
    since_ms, times = given
    if not isinstance(since_ms, (int, float)) or not isinstance(times, int) or not 0 <= times < 1_000_000:
        return None
    return float(since_ms), times
