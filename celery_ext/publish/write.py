"""Makes the messages of calls, as Celery would make them, byte for byte."""

import os
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import inf
from numbers import Real
from time import time, time_ns
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from celery import Celery
from celery.app.amqp import INT_MIN
from celery.utils import time as celery_time
from celery.utils.saferepr import saferepr as saferepr_of_celery

from kombu_delayq.message import (
    EPOCH,
    eta_of,
    in_utc,
    ms_of,
    read,
    stamp_text,
    text_to_json,
    to_json,
    us_of,
    uuid_of,
    with_tag,
    without_nulls,
)
from kombu_delayq.store import Offer
from kombu_delayq.text import as_bytes

if TYPE_CHECKING:
    from celery_ext.publish.recipe import Recipe
    from celery_ext.publish.template import Template

#: Values of these types are shown as ``str`` shows them.
_AS_STR = frozenset((int, float, bool, type(None)))
#: Values of these types are shown as ``repr`` shows them.
_AS_REPR = frozenset((date, datetime, Decimal, UUID))
_MICROSECOND = timedelta(microseconds=1)
#: Number of UUIDs that one read of random bytes gives.
_UUIDS_AT_ONCE = 512
#: Length of a UUID as text, and where its digits stand.
_UUID_LENGTH = 36
_DIGITS = [at for at in range(_UUID_LENGTH) if at not in (8, 13, 18, 23)]
#: Give a byte the digit of version 4, and the bits of the variant. Source: RFC 9562.
_VERSION = bytes(byte & 0x0F | 0x40 for byte in range(256))
_VARIANT = bytes(byte & 0x3F | 0x80 for byte in range(256))
#: Adds seconds to a time in the way of the Celery in use; before 5.7 Celery adds them to the local time.
_add_seconds: Callable[[datetime, float], datetime] = getattr(
    celery_time, "add_seconds_to_datetime", lambda moment, seconds: moment + timedelta(seconds=seconds)
)


class Own(NamedTuple):
    """What a call may have of its own beside its arguments and times, as ``send_task`` takes it.

    Attributes:
        chain_id: Id of the delay chain of which the call is a step.
        last_error: Why the run before failed, of a retry.
    """

    headers: Any = None
    root_id: Any = None
    parent_id: Any = None
    reply_to: Any = None
    origin: str | None = None
    argsrepr: Any = None
    kwargsrepr: Any = None
    chain_id: str | None = None
    last_error: str | None = None


NOTHING = Own()


#: The gaps of a message of ``Writer``, in the order in which it has their texts. Beside those of ``template.Gaps``:
#: the process that first sent the task, where the RPC result backend sends the result, the id of the delay chain, and
#: why the run before failed.
_SLOTS = (
    *("body", "task_id", "eta", "expires", "expiration", "root_id", "parent_id", "argsrepr", "kwargsrepr", "headers"),
    *("delivery_tag", "timestamp", "origin", "reply_to", "chain_id", "last_error"),
)


class Uuids:
    """Random UUIDs of version 4 as text, drawn many at once: a tenth of the time of ``uuid4``.

    Threads may share it. A process that was forked must not use that of its parent: it would draw the same.
    """

    def __init__(self) -> None:
        self._drawn: list[str] = []

    def draw(self) -> str:
        """Returns one."""
        while True:
            try:
                return self._drawn.pop()
            except IndexError:
                self._drawn += _draw_uuids()


def _draw_uuids() -> list[str]:
    drawn = bytearray(os.urandom(16 * _UUIDS_AT_ONCE))
    drawn[6::16] = drawn[6::16].translate(_VERSION)
    drawn[8::16] = drawn[8::16].translate(_VARIANT)
    digits = drawn.hex().encode()
    # Each digit of all UUIDs is written in one step.
    text = bytearray(b"-" * (_UUID_LENGTH * _UUIDS_AT_ONCE))
    for place, at in enumerate(_DIGITS):
        text[at::_UUID_LENGTH] = digits[place::32]
    found = text.decode()
    return [found[start : start + _UUID_LENGTH] for start in range(0, len(found), _UUID_LENGTH)]


def again(offer: Offer) -> Offer:
    """Returns a message for a further attempt: one that is due at once gets a delivery tag of its own."""
    if offer.due:
        return offer
    body = as_bytes(offer.body)
    tag = str(read(body)["properties"]["delivery_tag"])
    return offer._replace(body=body.replace(tag.encode(), uuid_of(os.urandom(16).hex()).encode()))


class Etas:
    """Due times in UTC, in less time than ``datetime`` takes where calls follow each other. Threads may share it."""

    def __init__(self) -> None:
        #: The last countdown, and the same in µs.
        self._countdown: tuple[Any, int] = (None, 0)
        #: The last second of an eta, and its text.
        self._second = (-1, "")

    def delay_us(self, countdown: Any) -> int:
        """Returns a countdown in µs."""
        last, delay_us = self._countdown
        if countdown is not last:
            _check_range(countdown, "countdown")
            delay_us = timedelta(seconds=countdown) // _MICROSECOND
            self._countdown = (countdown, delay_us)
        return delay_us

    def text(self, due_us: int) -> str:
        """Returns a time in µs since the epoch as JSON text in ISO 8601."""
        second, us = divmod(due_us, 1_000_000)
        last, text = self._second
        if second != last:
            text = (EPOCH + timedelta(seconds=second)).isoformat()[:19]
            self._second = (second, text)
        return f'"{text}.{us:06}+00:00"' if us else f'"{text}+00:00"'


class Writer:
    """Makes the messages of a recipe. Threads may share it.

    Args:
        app: The app.
        recipe: How they are made.
        draw: Draws a random UUID.

    Attributes:
        plain: Makes those of most calls.
    """

    def __init__(self, app: Any, recipe: "Recipe", draw: Callable[[], str]) -> None:
        self.recipe = recipe
        self._app, self._amqp = app, app.amqp
        self._serialize, self._template, self._draw = recipe.serialize, recipe.template, draw
        self._levels = app.conf.get("task_repr_maxlevels", 3)
        self._etas = Etas()
        self._names_caller = "reply_to" in recipe.template.form.gaps
        self.plain = PlainCalls(app, recipe, draw)
        places = {name: (at, "%s") for at, name in enumerate(_SLOTS)}
        self._fill, self._fill_orphan = (
            form.writer({}, places) for form in (self._template.form, self._template.orphan)
        )

    def write(
        self,
        args: Any,
        kwargs: Any,
        task_id: str,
        *,
        is_new: bool,
        countdown: Any = None,
        eta: Any = None,
        expires: Any = None,
        own: Own = NOTHING,
    ) -> Offer:
        """Makes the message of a call. Its due time is empty when the task is due at once.

        Args:
            args: Positional arguments, or None.
            kwargs: Keyword arguments, or None.
            task_id: The task id.
            is_new: Whether the id was drawn for this call, so that no other message has it.
            countdown: Delay in s, or None.
            eta: Due time, a datetime or ISO 8601, or None.
            expires: Expiry, in a form that Celery takes, if the template has one at all.
            own: What the call has beside these.

        Raises:
            TypeError: Celery does not take the arguments, or the task id is no text.
            ValueError: Celery does not take the countdown or the expiry.
            DelayTooLong: The transport option ``max_delay`` does not allow the delay.
            kombu.exceptions.EncodeError: The arguments cannot be written.

        Source: celery.app.amqp.AMQP.as_task_v2
        """
        args, kwargs = args or (), kwargs or {}
        if not isinstance(args, (list, tuple)):
            raise TypeError("task args must be a list or tuple")
        if not isinstance(kwargs, Mapping):
            raise TypeError("task keyword arguments must be a mapping")
        if not isinstance(task_id, str):
            raise TypeError(f"task_id={task_id!r} is not a text")
        now = None
        if countdown and expires is None and is_in_utc(self._app):
            eta_json, due = self._due_in(countdown, task_id)
        else:
            now = _now(self._app) if countdown or expires is not None else None
            if countdown and now is not None:
                _check_range(countdown, "countdown")
                eta = self._after(now, countdown)
            eta_json, due = self._due(eta, task_id)
        expiry, expiration = ("null", "null") if expires is None or now is None else self._expiry(now, expires)
        task_id_json = text_to_json(task_id)
        body = body_json(self._serialize(args, kwargs), self._template)
        argsrepr = self._shown(own.argsrepr, args, self._amqp.argsrepr_maxsize)
        kwargsrepr = self._shown(own.kwargsrepr, kwargs, self._amqp.kwargsrepr_maxsize)
        headers = headers_json(own.headers)
        root_id = text_to_json(own.root_id) if own.root_id else task_id_json
        parent_id = text_to_json(own.parent_id) if own.parent_id else "null"
        origin = text_to_json(own.origin) if own.origin else ""
        reply_to = text_to_json(own.reply_to or self._app.thread_oid) if self._names_caller else ""
        chain_id = "" if own.chain_id is None else text_to_json(own.chain_id)
        last_error = "" if own.last_error is None else text_to_json(own.last_error)
        timestamp = "" if due else stamp_text()
        fill = self._fill if own.parent_id else self._fill_orphan
        head = body, task_id_json, eta_json, expiry, expiration, root_id, parent_id, argsrepr, kwargsrepr, headers
        tail = timestamp, origin, reply_to, chain_id, last_error

        def write(tag: str) -> str:
            return fill((*head, f'"{tag}"', *tail))

        # A message that waits is canonical if its call has an id and an eta: sent twice, it is stored once. One with a
        # countdown is another one with every call. One without an eta is not canonical, else later calls with the same
        # id would be taken for the same call. One that is due is not either: a worker that has two messages of one
        # delivery tag would acknowledge both at once.
        is_other = is_new or countdown or not due
        text = write(self._draw()) if is_other else with_tag(write)[1]
        return Offer(task_id, due, self.recipe.priority, text)

    def _due_in(self, countdown: Any, task_id: str) -> tuple[str, str]:
        """Returns what ``_due`` does, for a countdown in s where the app's clock is in UTC, in half the time."""
        now_us = time_ns() // 1000
        due_us = now_us + self._etas.delay_us(countdown)
        text, due = self._etas.text(due_us), repr(due_us / 1000)
        if due_us > now_us:
            self.recipe.broker.check_delay((due_us - now_us) / 1e6, f"task {task_id}")
            return text, due
        return text, due if self.recipe.is_step else ""

    def _due(self, eta: Any, task_id: str) -> tuple[str, str]:
        """Returns the eta as JSON text, and the due time in the form of ``Offer``.

        A step of a delay chain has one even if it is due at once. A task whose eta no worker can read is due at once:
        the worker reports it.
        """
        is_step = self.recipe.is_step
        if eta is None:
            return "null", "+0.0" if is_step else ""
        if isinstance(eta, datetime):
            text, due_ms = f'"{eta.isoformat()}"', ms_of(eta)
        else:
            if not isinstance(eta, str):
                raise TypeError(f"eta={eta!r} is neither a datetime nor a text")
            text, found = text_to_json(eta), eta_of({"headers": {"eta": eta}})
            if found is None:
                return text, "+0.0" if is_step else ""
            due_ms = found.ms
        delay_ms = due_ms - time() * 1000
        if delay_ms > 0:
            self.recipe.broker.check_delay(delay_ms / 1000, f"task {task_id}")
            return text, repr(due_ms)
        return text, repr(due_ms) if is_step else ""

    def _expiry(self, now: datetime, expires: Any) -> tuple[str, str]:
        """Returns the expiry, and the ms until then, both as JSON text. Source: celery.app.base.Celery.send_task."""
        if isinstance(expires, Real):
            _check_range(expires, "expires")
            seconds = float(expires)
            return f'"{self._after(now, seconds).isoformat()}"', _in_ms(seconds)
        if isinstance(expires, str):
            due = eta_of({"headers": {"eta": expires}})
            if due is None:
                raise ValueError(f"expires={expires!r} is not a time")
            return text_to_json(expires), _in_ms(due.ms / 1000 - now.timestamp())
        return f'"{expires.isoformat()}"', _in_ms((in_utc(expires) - now).total_seconds())

    def _after(self, now: datetime, seconds: float) -> datetime:
        """Returns the time ``seconds`` from now."""
        if now.tzinfo is UTC:
            return now + timedelta(seconds=seconds)
        moment: datetime = celery_time.maybe_make_aware(_add_seconds(now, seconds), tz=self._app.timezone)
        return moment

    def _shown(self, given: Any, arguments: Any, most: int) -> str:
        """Returns as JSON text what the call gives as the shown form of arguments, else Celery's."""
        text = saferepr(arguments, most, self._levels) if given is None else given
        return text_to_json(text) if isinstance(text, str) else to_json(text)


#: In a row of ``PlainCalls``, where the text of each gap stands, and around what; a body also without base64.
_PLACES = {
    "body": (0, '"%s"'),
    "task_id": (1, '"%s"'),
    "root_id": (1, '"%s"'),
    "delivery_tag": (2, '"%s"'),
    "eta": (3, "%s"),
    "argsrepr": (4, "%s"),
    "kwargsrepr": (5, "%s"),
    "timestamp": (6, "%s"),
    "headers": (7, "%s"),
    "reply_to": (8, '"%s"'),
}
_NO_KWARGS = '"{}"'
#: What a plain call has in the other gaps.
_FIXED = {"expires": "null", "expiration": "null", "parent_id": "null", "group_id": "null"}


class PlainCalls:
    """Makes the messages of calls with arguments and a due time, and nothing else of their own, in half the time.

    Threads may share it. The arguments are those of ``Writer``.
    """

    def __init__(self, app: Any, recipe: "Recipe", draw: Callable[[], str]) -> None:
        template, self._draw = recipe.template, draw
        self._app, self._names_caller = app, "reply_to" in template.orphan.gaps
        self._amqp, self._levels = app.amqp, app.conf.get("task_repr_maxlevels", 3)
        self._serialize, self._template, self._priority = recipe.serialize, template, recipe.priority
        self._max_delay_s = inf if recipe.broker.max_delay is None else recipe.broker.max_delay
        places = {**_PLACES, "body": (0, "%s")} if template.is_text else _PLACES
        gaps = {*template.orphan.gaps}
        #: Writes a message; None where a message has more of its own, or where the app's clock is not that of UTC.
        self._write: Callable[[Sequence[str]], str] | None = None
        if not recipe.is_step and gaps <= {*places, *_FIXED} and is_in_utc(app):
            self._write = template.orphan.writer(_FIXED, places)
        self._etas = Etas()

    def offer(self, args: Any, kwargs: Any, countdown: Any, eta: Any, headers: Any) -> Offer | None:
        """Makes a message as ``Writer.write`` does; None if that has to make it, or to refuse it."""
        write, max_bytes = self._write, self._amqp.argsrepr_maxsize
        if write is None or not (args is None or type(args) in (tuple, list)):
            return None
        if kwargs and type(kwargs) is not dict:
            return None
        args, kwargs = args or (), kwargs or {}
        shown, due = "null", ""
        if countdown or eta is not None:
            now_us = time_ns() // 1000
            if countdown:
                due_us = now_us + self._etas.delay_us(countdown)
                shown = self._etas.text(due_us)
            elif type(eta) is datetime:
                due_us, shown = us_of(eta), f'"{eta.isoformat()}"'
            else:
                return None
            if due_us > now_us:
                due = repr(due_us / 1000)
                if due_us - now_us > self._max_delay_s * 1e6:
                    return None
        raw = self._serialize(args, kwargs)
        template, levels = self._template, self._levels
        body = body_json(raw, template) if template.is_text else b2a_base64(raw, newline=False).decode()
        argsrepr = text_to_json(saferepr(args, max_bytes, levels))
        kwargsrepr = text_to_json(saferepr(kwargs, self._amqp.kwargsrepr_maxsize, levels)) if kwargs else _NO_KWARGS
        task_id = self._draw()
        more = headers_json(headers) if headers else ""
        reply_to = self._app.thread_oid if self._names_caller else ""
        row = body, task_id, self._draw(), shown, argsrepr, kwargsrepr, "" if due else stamp_text(), more, reply_to
        return Offer(task_id, due, self._priority, write(row))


def headers_json(headers: Any) -> str:
    """Returns further headers as they stand in a message, behind its own; empty without any."""
    return f", {to_json(headers)[1:-1]}" if headers else ""


def body_json(raw: bytes, template: "Template") -> str:
    """Returns a body, serialized and compressed, as it stands in a message, as JSON."""
    if template.is_without_nulls:
        raw = without_nulls(raw.decode()).encode()
    return text_to_json(raw.decode()) if template.is_text else f'"{b2a_base64(raw, newline=False).decode()}"'


def _now(app: Any) -> datetime:
    """Returns ``app.now()``, in less time where that is in UTC."""
    now: datetime = datetime.now(UTC) if is_in_utc(app) else app.now()
    return now


def is_in_utc(app: Any) -> bool:
    """Whether ``app.now()`` is Celery's own, and in UTC."""
    own = vars(app)
    is_own = type(app).now is Celery.now and "now" not in own
    zone = own.get("timezone") or app.timezone  # where its cached property keeps it: to ask that takes longer
    return is_own and (zone is UTC or getattr(zone, "key", None) == "UTC")


def _check_range(seconds: Any, what: str) -> None:
    """Refuses what Celery refuses. Source: celery.app.amqp.AMQP._verify_seconds."""
    if seconds < INT_MIN:
        raise ValueError(f"{what} is out of range: {seconds!r}")


def _in_ms(seconds: float) -> str:
    return f'"{int(max(seconds, 0) * 1000)}"'


def saferepr(arguments: Any, most: int, levels: int) -> str:
    """Returns the text of Celery's ``saferepr``, several times as fast for short arguments without containers in them.

    Args:
        arguments: Positional or keyword arguments.
        most: Celery cuts off texts of this many characters or more.
        levels: Depth to which containers are shown.

    Source: celery.utils.saferepr
    """
    flat = _flat(arguments) if levels >= 0 else None
    return flat if flat is not None and len(flat) < most else saferepr_of_celery(arguments, most, levels)


def _flat(arguments: Any) -> str | None:
    """Returns the text of arguments without containers in them; None for others."""
    kind = type(arguments)
    if kind in (tuple, list) and _AS_STR.issuperset(map(type, arguments)):
        return repr(arguments)
    if kind is dict:
        names, values = texts_of(arguments), texts_of(arguments.values())
        if names is None or values is None:
            return None
        return "{" + ", ".join([f"{name}: {value}" for name, value in zip(names, values, strict=True)]) + "}"
    values = texts_of(arguments) if kind in (tuple, list) else None
    if values is None:
        return None
    if kind is list:
        return f"[{', '.join(values)}]"
    return f"({values[0]},)" if len(values) == 1 else f"({', '.join(values)})"


def texts_of(values: Iterable[Any]) -> list[str] | None:
    """Returns the text of each value in a container that is not cut off.

    Returns:
        The texts; None if a value is a container or bytes, which Celery may cut off by themselves, or of a type that
        is not known here.
    """
    texts = []
    for value in values:
        kind = type(value)
        if kind is str:
            texts.append("'" + value.replace("'", "\\'") + "'")
        elif kind in _AS_STR:
            texts.append(str(value))
        elif kind in _AS_REPR:
            texts.append(repr(value))
        else:
            return None
    return texts
