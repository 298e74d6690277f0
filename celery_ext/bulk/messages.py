"""Calls become messages, by a template that all of them share."""

import os
from binascii import b2a_base64
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from numbers import Real
from time import time
from typing import TYPE_CHECKING, Any

from kombu import compression, serialization
from kombu.utils.json import dumps

from celery_ext.bulk.argsrepr import shown
from celery_ext.bulk.encoding import text_to_json, to_json
from celery_ext.bulk.target import Call, Common, Target
from kombu_delayq.message.due import eta_of
from kombu_delayq.message.seal import seal_text, uuid_of
from kombu_delayq.store.types import Offer

if TYPE_CHECKING:
    from kombu_delayq.options import Options

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: What the 17th hex digit of a random UUID may be, by what is drawn.
_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))
#: So many UUIDs are drawn at once.
_DRAWN = 512


class BulkMessages:
    """Makes the messages of calls.

    Args:
        target: What is called.
        common: What the messages have in common.
        broker: Options of the transport.
    """

    def __init__(self, target: Target, common: Common, broker: "Options") -> None:
        self._app = target.app
        self._name = target.name
        self._check = getattr(target.task, "__header__", None) if getattr(target.task, "typing", False) else None
        self._template = common.template
        self._priority = min(max(common.template.priority, 0), 9)
        self._embed = common.embed
        self._write = self._writer()
        self._expires = target.expires
        self._reprs = [target.options.get(name) for name in ("argsrepr", "kwargsrepr")]
        self._most = [self._app.amqp.argsrepr_maxsize, self._app.amqp.kwargsrepr_maxsize]
        self._levels = self._app.conf.get("task_repr_maxlevels", 3)
        self._check_delay = broker.check_delay
        #: The app's time, asked for once, and what ``time`` said then and says at the call in hand.
        self._base: datetime | None = None
        self._base_s = self._at_s = 0.0
        self._ids, self._tags = _uuids(random=True), _uuids(random=False)

    def of(self, call: Call) -> Offer:
        """Makes the message of a call; its due time is empty for now.

        Raises:
            TypeError: The task does not take the arguments.
            DelayTooLong: The transport option ``max_delay`` does not allow the delay.
            kombu.exceptions.EncodeError: The arguments cannot be written.
        """
        self._at_s = time()
        args, kwargs = call.args or (), call.kwargs or {}
        self._accept(args, kwargs)
        task_id = call.task_id or next(self._ids)
        eta, due = self._due(call, task_id)
        expires, expiration = ("null", "null") if self._expires is None else self._expiry()
        own = f'"{task_id}"' if call.task_id is None else text_to_json(task_id)
        body = f'"{b2a_base64(self._write(args, kwargs), newline=False).decode()}"'
        reprs = (self._repr(0, args), self._repr(1, kwargs))
        slots = (body, own, eta, expires, expiration, "", "", "", *reprs, "")

        def written(tag: str) -> str:
            return self._template.fill((*slots, f'"{tag}"'))

        # A task whose id is given has the delivery tag that apply_async would give it, so that the same twice is known.
        text = seal_text(written) if call.task_id else written(next(self._tags))
        return Offer(task_id, due, self._priority, text)

    def _accept(self, args: Any, kwargs: Any) -> None:
        """Checks arguments. Source: celery.app.task.Task.apply_async, celery.app.amqp.AMQP.as_task_v2."""
        if self._check is not None:
            self._check(*args, **kwargs)
        if not isinstance(args, (list, tuple)):
            raise TypeError("task args must be a list or tuple")
        if not isinstance(kwargs, Mapping):
            raise TypeError("task keyword arguments must be a mapping")

    def _due(self, call: Call, task_id: str) -> tuple[str, str]:
        """Returns the eta as JSON text, and the due time as of ``Offer``."""
        eta = call.eta
        if call.countdown:
            eta = self._after(call.countdown)
        if not eta:
            return "null", ""
        if isinstance(eta, datetime):
            text = f'"{eta.isoformat()}"'
            aware = eta if eta.tzinfo else eta.replace(tzinfo=UTC)
            ms = (aware - _EPOCH) / _MICROSECOND / 1000
        else:
            text = text_to_json(eta)
            due = eta_of({"headers": {"eta": eta}})
            if due is None:  # as a message of apply_async, for the worker to complain of
                return text, ""
            ms = due.ms
        delay_ms = ms - self._at_s * 1000
        if delay_ms <= 0:
            return text, ""
        self._check_delay(delay_ms / 1000, f"task {task_id}")
        return text, repr(ms)

    def _expiry(self) -> tuple[str, str]:
        """Returns until when a task may run, and in how many ms that is, as JSON text. Source: Celery.send_task."""
        expires = self._expires
        if isinstance(expires, Real):
            moment: Any = self._after(float(expires))
            return f'"{moment.isoformat()}"', _in_ms(float(expires))
        if isinstance(expires, str):
            due = eta_of({"headers": {"eta": expires}})
            if due is None:
                raise ValueError(f"expires={expires!r} is no time")
            return text_to_json(expires), _in_ms(due.ms / 1000 - self._now().timestamp())
        moment = expires if expires.tzinfo else expires.replace(tzinfo=UTC)
        return f'"{expires.isoformat()}"', _in_ms((moment - self._now()).total_seconds())

    def _after(self, seconds: float) -> datetime:
        """Returns the time so many s from now, in the app's zone. Source: celery.app.amqp.AMQP.as_task_v2."""
        now = self._now()
        return (now.astimezone(UTC) + timedelta(seconds=seconds)).astimezone(now.tzinfo)

    def _now(self) -> datetime:
        """Returns the app's time at the call in hand. ``Celery.now`` looks up settings, which takes its time."""
        if self._base is None:
            self._base, self._base_s = self._app.now(), self._at_s
        passed = timedelta(seconds=self._at_s - self._base_s)
        return (self._base.astimezone(UTC) + passed).astimezone(self._base.tzinfo)

    def _repr(self, which: int, arguments: Any) -> str:
        given = self._reprs[which]
        return text_to_json(shown(arguments, self._most[which], self._levels)) if given is None else to_json(given)

    def _writer(self) -> Callable[[Any, Any], bytes]:
        """Returns what serializes the body of a message."""
        serializer, compressed_by, embed = self._template.serializer, self._template.compression, self._embed

        def write(args: Any, kwargs: Any) -> bytes:
            raw = serialization.dumps((args, kwargs, embed), serializer)[2]
            raw = raw.encode() if isinstance(raw, str) else raw
            return bytes(compression.compress(raw, compressed_by)[0] if compressed_by else raw)

        def write_json(args: Any, kwargs: Any) -> bytes:
            try:
                return to_json((args, kwargs, embed)).encode()
            except Exception:  # whatever it is, kombu has an error for it
                return write(args, kwargs)

        codec = serialization.registry._encoders.get(serializer)
        is_plain = codec is not None and codec.encoder is dumps and not compressed_by
        return write_json if is_plain else write


def _in_ms(seconds: float) -> str:
    return f'"{int(max(seconds, 0) * 1000)}"'


def _uuids(*, random: bool) -> Iterator[str]:
    """Yields UUIDs as text, by the thousands faster than ``uuid4``.

    Args:
        random: Whether they say of themselves that they are random, as ``uuid4`` does.
    """
    while True:
        drawn = os.urandom(16 * _DRAWN).hex()
        for at in range(0, len(drawn), 32):
            digits = drawn[at : at + 32]
            if random:
                digits = f"{digits[:12]}4{digits[13:16]}{_VARIANT[digits[16]]}{digits[17:]}"
            yield uuid_of(digits)
