"""Makes the message of a single call, as Celery would make it."""

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from time import time
from typing import Any, NamedTuple

from celery import Celery
from celery.utils import time as celery_time

from celery_ext.bulk.argsrepr import saferepr
from celery_ext.bulk.messages import body_json
from celery_ext.fast.recipe import Recipe, Slots
from kombu_delayq.message.due import eta_of
from kombu_delayq.message.fields import text_to_json, to_json
from kombu_delayq.message.lighter import cut
from kombu_delayq.message.seal import seal_text, uuid_of, version_4
from kombu_delayq.message.times import ms_of
from kombu_delayq.store.types import Offer

#: Longest expiry in s of which a message is made here.
_MOST_EXPIRES_S = 100 * 366 * 86400
#: Adds seconds to a time in the way of the Celery in use; before 5.7 Celery adds them to the local time.
_add_seconds: Callable[[datetime, float], datetime] = getattr(
    celery_time, "add_seconds_to_datetime", lambda moment, seconds: moment + timedelta(seconds=seconds)
)


class LeftToCelery(Exception):  # no error: it ends our attempt
    """Celery has to make or to send this message."""


class OneCall(NamedTuple):
    """What differs from call to call, as ``send_task`` takes it; None for what is not given.

    Attributes:
        task_id: The task id.
        chain_id: Id of the delay chain of which the call is a step.
    """

    task_id: str
    args: Any
    kwargs: Any
    countdown: Any
    eta: Any
    expires: Any
    headers: Any
    root_id: Any
    parent_id: Any
    reply_to: Any
    origin: str | None
    argsrepr: str | None
    kwargsrepr: str | None
    chain_id: str | None


class Written(NamedTuple):
    """A message.

    Attributes:
        offer: The message in the form of ``DelayedChannel.put_one``.
        write: Makes the message anew, with another delivery tag.
    """

    offer: Offer
    write: Callable[[str], str]

    def again(self) -> Offer:
        """Returns the message for a further attempt: one that is due at once gets a delivery tag of its own."""
        return self.offer if self.offer.due else self.offer._replace(body=self.write(new_tag()))


def written(app: Any, amqp: Any, recipe: Recipe, call: OneCall, repr_levels: int, *, is_new: bool) -> Written:
    """Makes the message of a call.

    Args:
        app: The app.
        amqp: ``app.amqp``.
        recipe: How messages of the task are made.
        call: The call.
        repr_levels: Depth to which containers are shown in ``argsrepr`` and ``kwargsrepr``.
        is_new: Whether the task id was drawn for this call, so that no other message has it.

    Raises:
        Exception: Of any type. Celery has to make this message, or to raise its own error.
    """
    args, kwargs = call.args or (), call.kwargs or {}
    if not isinstance(args, (list, tuple)) or not isinstance(kwargs, Mapping):
        raise LeftToCelery
    now = _now(app) if call.countdown or call.expires is not None else None
    eta, due_ms = _eta(app, call, now)
    due = _due(due_ms, is_step=recipe.is_step)
    expires, expiration = _expiry(app, call.expires, now)
    task_id = text_to_json(call.task_id)
    body = body_json(recipe.serialize(args, kwargs), recipe.template)
    root_id = text_to_json(call.root_id) if call.root_id else task_id
    parent_id = text_to_json(call.parent_id) if call.parent_id else "null"
    most = recipe.repr_maxsize
    argsrepr = _shown(call.argsrepr, args, amqp.argsrepr_maxsize, repr_levels, most)
    kwargsrepr = _shown(call.kwargsrepr, kwargs, amqp.kwargsrepr_maxsize, repr_levels, most)
    headers = _further(call.headers, recipe)
    origin = text_to_json(call.origin) if call.origin else ""
    reply_to = text_to_json(call.reply_to or app.thread_oid)
    chain_id = "" if call.chain_id is None else text_to_json(call.chain_id)
    fill = recipe.template.fill

    def write(delivery_tag: str) -> str:
        return fill(
            Slots(
                body=body,
                task_id=task_id,
                eta=eta,
                expires=expires,
                expiration=expiration,
                root_id=root_id,
                parent_id=parent_id,
                argsrepr=argsrepr,
                kwargsrepr=kwargsrepr,
                headers=headers,
                delivery_tag=f'"{delivery_tag}"',
                origin=origin,
                reply_to=reply_to,
                chain_id=chain_id,
            )
        )

    # Without an eta, later calls with the same id would be taken for the same call. A new id has no other call.
    text = write(new_tag()) if is_new or not due else seal_text(write)
    return Written(Offer(call.task_id, due, recipe.priority, text), write)


def new_task_id() -> str:
    """Returns a random task id, a UUID of version 4 as Celery draws it."""
    return uuid_of(version_4(os.urandom(16).hex()))


def new_tag() -> str:
    """Returns a random delivery tag."""
    return uuid_of(os.urandom(16).hex())


def _due(due_ms: float | None, *, is_step: bool) -> str:
    """Returns the due time in the form of ``Offer``. A step of a delay chain has one even if it is due at once."""
    if due_ms is None:
        return "+0.0" if is_step else ""
    return repr(due_ms) if is_step or due_ms > time() * 1000 else ""


def _eta(app: Any, call: OneCall, now: datetime | None) -> tuple[str, float | None]:
    """Returns the eta as JSON, and in ms since the epoch; None if there is none, or no worker can read it.

    Source: celery.app.amqp.AMQP.as_task_v2.
    """
    eta = call.eta
    if now is not None and call.countdown:
        eta = _after(app, now, call.countdown)
    if eta is None:
        return "null", None
    if isinstance(eta, datetime):
        return f'"{eta.isoformat()}"', ms_of(eta)
    if not isinstance(eta, str):
        raise LeftToCelery
    due = eta_of({"headers": {"eta": eta}})
    return text_to_json(eta), None if due is None else due.ms


def _now(app: Any) -> datetime:
    """Returns ``app.now()``, in less time where that is in UTC."""
    is_own = type(app).now is Celery.now and "now" not in vars(app)
    now: datetime = datetime.now(UTC) if is_own and _is_utc(app.timezone) else app.now()
    return now


def _is_utc(zone: Any) -> bool:
    return zone is UTC or getattr(zone, "key", None) == "UTC"


def _after(app: Any, now: datetime, seconds: float) -> datetime:
    """Returns the time ``seconds`` from now. Source: celery.app.amqp.AMQP.as_task_v2."""
    if now.tzinfo is UTC:
        return now + timedelta(seconds=seconds)
    moment: datetime = celery_time.maybe_make_aware(_add_seconds(now, seconds), tz=app.timezone)
    return moment


def _expiry(app: Any, expires: Any, now: datetime | None) -> tuple[str, str]:
    """Returns when a call expires, and the ms until then, both as JSON. Source: Celery.send_task."""
    if expires is None or now is None:
        return "null", "null"
    if type(expires) not in (int, float) or not 0 <= expires <= _MOST_EXPIRES_S:
        raise LeftToCelery
    return f'"{_after(app, now, expires).isoformat()}"', f'"{int(expires * 1000)}"'


def _shown(given: str | None, arguments: Any, celerys_most: int, levels: int, most: int | None) -> str:
    if given is None:
        return text_to_json(cut(saferepr(arguments, celerys_most, levels), most))
    if most is not None and len(given) > most:
        raise LeftToCelery  # which also has it in the properties, uncut
    return text_to_json(given)


def _further(headers: Any, recipe: Recipe) -> str:
    if not headers:
        return ""
    if not recipe.headers.isdisjoint(headers):
        raise LeftToCelery  # they replace headers of the message
    return f", {to_json(headers)[1:-1]}"
