"""Makes the messages of calls, from a template that all of them share."""

import os
from binascii import b2a_base64
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from numbers import Real
from time import time
from typing import TYPE_CHECKING, Any

from kombu import compression, serialization
from kombu.utils.json import dumps

from celery_ext.bulk.argsrepr import saferepr
from celery_ext.bulk.target import Call, Shared, Target
from celery_ext.bulk.template import Slots, Template
from kombu_delayq.message.due import eta_of
from kombu_delayq.message.fields import text_to_json, to_json
from kombu_delayq.message.lighter import cut, without_nulls
from kombu_delayq.message.seal import seal_text, uuid_of, version_4
from kombu_delayq.message.times import in_utc, ms_of
from kombu_delayq.store.types import Offer

if TYPE_CHECKING:
    from kombu_delayq.options import Options

#: Number of UUIDs that one read of random bytes gives.
_UUIDS_AT_ONCE = 512


class BulkMessages:
    """Makes the messages of calls.

    Args:
        target: The task that is called.
        shared: The common parts of all messages.
        broker: Options of the transport.
    """

    def __init__(self, target: Target, shared: Shared, broker: "Options") -> None:
        self._app = target.app
        self._check_signature = (
            getattr(target.task, "__header__", None) if getattr(target.task, "typing", False) else None
        )
        self._template = shared.template
        self._priority = min(max(shared.template.priority, 0), 9)
        self._serialize = body_serializer(shared.template.serializer, shared.template.compression, shared.embed)
        self._expires = target.expires
        self._argsrepr, self._kwargsrepr = (target.options.get(name) for name in ("argsrepr", "kwargsrepr"))
        self._argsrepr_most, self._kwargsrepr_most = (
            self._app.amqp.argsrepr_maxsize,
            self._app.amqp.kwargsrepr_maxsize,
        )
        self._repr_levels = self._app.conf.get("task_repr_maxlevels", 3)
        self._check_delay = broker.check_delay
        self._repr_maxsize = broker.repr_maxsize
        #: ``app.now()`` and ``time()`` at the first call that needs them.
        self._app_start: datetime | None = None
        self._start_s = 0.0
        #: ``time()`` of this call.
        self._now_s = 0.0
        self._task_ids, self._delivery_tags = _uuids(are_version_4=True), _uuids(are_version_4=False)

    def of(self, call: Call, *, expires: Any = None, headers: Mapping[str, Any] | None = None) -> Offer:
        """Makes the message of a call. The due time of the offer is empty when the task is due at once.

        Args:
            call: The call.
            expires: Its own expiry, in a form that Celery takes, if the template has one at all.
            headers: Its own headers, beside those of the template.

        Raises:
            TypeError: The task does not take the arguments.
            DelayTooLong: The transport option ``max_delay`` does not allow the delay.
            kombu.exceptions.EncodeError: The arguments cannot be written.
        """
        self._now_s = time()
        args, kwargs = call.args or (), call.kwargs or {}
        self._check_arguments(args, kwargs)
        task_id = call.task_id or next(self._task_ids)
        eta, due = self._due(call, task_id)
        expires = self._expires if expires is None else expires
        expiry, expiration = ("null", "null") if expires is None else self._expiry(expires)
        task_id_json = f'"{task_id}"' if call.task_id is None else text_to_json(task_id)
        body = body_json(self._serialize(args, kwargs), self._template)
        argsrepr = self._repr(self._argsrepr, args, self._argsrepr_most)
        kwargsrepr = self._repr(self._kwargsrepr, kwargs, self._kwargsrepr_most)
        more = f", {to_json(headers)[1:-1]}" if headers else ""

        def write(delivery_tag: str) -> str:
            return self._template.fill(
                Slots(
                    body=body,
                    task_id=task_id_json,
                    eta=eta,
                    expires=expiry,
                    expiration=expiration,
                    group_id="",
                    root_id="",
                    parent_id="",
                    argsrepr=argsrepr,
                    kwargsrepr=kwargsrepr,
                    headers=more,
                    delivery_tag=f'"{delivery_tag}"',
                )
            )

        # A message that waits is sealed if its call has an id, as by apply_async: sent twice, it is stored once. One
        # without an eta is not, else later calls with the same id would be taken for the same call. One that is due is
        # not either: a worker that has two messages of one delivery tag would acknowledge both at once.
        is_sealed = call.task_id and due
        text = seal_text(write) if is_sealed else write(next(self._delivery_tags))
        return Offer(task_id, due, self._priority, text)

    def _check_arguments(self, args: Any, kwargs: Any) -> None:
        """Checks arguments. Source: celery.app.task.Task.apply_async, celery.app.amqp.AMQP.as_task_v2."""
        if self._check_signature is not None:
            self._check_signature(*args, **kwargs)
        if not isinstance(args, (list, tuple)):
            raise TypeError("task args must be a list or tuple")
        if not isinstance(kwargs, Mapping):
            raise TypeError("task keyword arguments must be a mapping")

    def _due(self, call: Call, task_id: str) -> tuple[str, str]:
        """Returns the eta as JSON text, and the due time in the form of ``Offer``."""
        eta = call.eta
        if call.countdown:
            eta = self._after(call.countdown)
        if not eta:
            return "null", ""
        if isinstance(eta, datetime):
            text, due_ms = f'"{eta.isoformat()}"', ms_of(eta)
        else:
            text = text_to_json(eta)
            due = eta_of({"headers": {"eta": eta}})
            if due is None:  # as with apply_async, the worker reports that it cannot read the eta
                return text, ""
            due_ms = due.ms
        delay_ms = due_ms - self._now_s * 1000
        if delay_ms <= 0:
            return text, ""
        self._check_delay(delay_ms / 1000, f"task {task_id}")
        return text, repr(due_ms)

    def _expiry(self, expires: Any) -> tuple[str, str]:
        """Returns the expiry, and the ms until then, both as JSON text. Source: Celery.send_task."""
        if isinstance(expires, Real):
            seconds = float(expires)
            return f'"{self._after(seconds).isoformat()}"', _in_ms(seconds)
        if isinstance(expires, str):
            due = eta_of({"headers": {"eta": expires}})
            if due is None:
                raise ValueError(f"expires={expires!r} is not a time")
            return text_to_json(expires), _in_ms(due.ms / 1000 - self._now().timestamp())
        return f'"{expires.isoformat()}"', _in_ms((in_utc(expires) - self._now()).total_seconds())

    def _after(self, seconds: float) -> datetime:
        """Returns the time ``seconds`` from now, in the app's zone. Source: celery.app.amqp.AMQP.as_task_v2."""
        now = self._now()
        return (now.astimezone(UTC) + timedelta(seconds=seconds)).astimezone(now.tzinfo)

    def _now(self) -> datetime:
        """Returns ``app.now()`` for this call. That function looks up settings, so it is called once only."""
        if self._app_start is None:
            self._app_start, self._start_s = self._app.now(), self._now_s
        passed = timedelta(seconds=self._now_s - self._start_s)
        return (self._app_start.astimezone(UTC) + passed).astimezone(self._app_start.tzinfo)

    def _repr(self, option: Any, arguments: Any, most: int) -> str:
        """Returns the shown form of arguments as JSON text.

        Args:
            option: The text that ``send_many`` has for all calls, or None.
            arguments: Positional or keyword arguments.
            most: As for ``saferepr``.
        """
        text = saferepr(arguments, most, self._repr_levels) if option is None else option
        return to_json(cut(text, self._repr_maxsize) if isinstance(text, str) else text)


def body_json(raw: bytes, template: Template) -> str:
    """Returns a body as it stands in a message, as JSON.

    Args:
        raw: The body, serialized and compressed.
        template: The message.
    """
    if template.is_without_nulls:
        raw = without_nulls(raw.decode()).encode()
    return text_to_json(raw.decode()) if template.is_text else f'"{b2a_base64(raw, newline=False).decode()}"'


def body_serializer(serializer: str, compressed_by: str | None, embed: Any) -> Callable[[Any, Any], bytes]:
    """Returns a function that writes the body of a message from positional and keyword arguments.

    Args:
        serializer: Name of the serializer.
        compressed_by: Name of the compression, or None.
        embed: Third element of the body.
    """

    def serialize(args: Any, kwargs: Any) -> bytes:
        raw = serialization.dumps((args, kwargs, embed), serializer)[2]
        raw = raw.encode() if isinstance(raw, str) else raw
        return bytes(compression.compress(raw, compressed_by)[0] if compressed_by else raw)

    def serialize_json(args: Any, kwargs: Any) -> bytes:
        try:
            return to_json((args, kwargs, embed)).encode()
        except Exception:  # ``serialize`` raises it as kombu's EncodeError
            return serialize(args, kwargs)

    codec = serialization.registry._encoders.get(serializer)
    is_plain_json = codec is not None and codec.encoder is dumps and not compressed_by
    return serialize_json if is_plain_json else serialize


def _in_ms(seconds: float) -> str:
    return f'"{int(max(seconds, 0) * 1000)}"'


def _uuids(*, are_version_4: bool) -> Iterator[str]:
    """Yields random UUIDs as text, faster than ``uuid4``.

    Args:
        are_version_4: Whether the UUIDs have the version and variant digits of ``uuid4``.
    """
    while True:
        drawn = os.urandom(16 * _UUIDS_AT_ONCE).hex()
        for start in range(0, len(drawn), 32):
            digits = drawn[start : start + 32]
            yield uuid_of(version_4(digits) if are_version_4 else digits)
