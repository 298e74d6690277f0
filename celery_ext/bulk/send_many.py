"""Sends many calls of one task at once, in a fraction of the time that as many ``apply_async`` take."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Unpack

from kombu.log import get_logger

from celery_ext.bulk.messages import BulkMessages
from celery_ext.bulk.sender import BulkSender
from celery_ext.bulk.target import Call, Target
from celery_ext.bulk.template import NoTemplate
from celery_ext.delays.chain import DelayChain
from celery_ext.delays.levels import delay_of_level
from celery_ext.typing import SharedOptions
from kombu_delayq.message.due import DELAY_SECONDS
from kombu_delayq.message.fields import CHAIN, CHAIN_ID
from kombu_delayq.message.pages import pages
from kombu_delayq.publish_batch import MAX_BYTES, MAX_OFFERS

if TYPE_CHECKING:
    from celery import Celery

logger = get_logger(__name__)

#: Options of ``apply_async`` and ``send_task`` that belong to a single call, or that only Celery itself passes.
_REFUSED = frozenset(
    (
        *("args", "kwargs", "task_id", "producer", "publisher", "connection", "router", "result_cls", "add_to_parent"),
        *("chain", "chord", "group_index", "retries", "replaced_task_nesting", DELAY_SECONDS, CHAIN_ID),
    )
)


def send_many(
    app: "Celery[Any]",
    task: Any,
    calls: Iterable[Call],
    *,
    on_sent: Callable[[list[str]], object] | None = None,
    **options: Unpack[SharedOptions],
) -> int:
    """Sends many calls of a task, each as ``apply_async`` would send it.

    The calls are read and sent a page of at most 200 at a time, so there may be any number of them.

    Args:
        app: Any app.
        task: A task of the app, or the name of any task.
        calls: The arguments, due time and task id of every call.
        on_sent: Called after each page with its task ids, in the order of the calls.
        **options: Options of ``apply_async`` for all calls, such as ``queue``, ``priority``, ``expires`` or ``link``.
            ``countdown``, ``eta`` or ``delay_level`` are for calls that have neither ``countdown`` nor ``eta``.

    Returns:
        Number of calls sent.

    Raises:
        TypeError: An option cannot be shared by many calls, and nothing was sent; or an item of ``calls`` is no
            ``Call``; or the task does not take the arguments of a call.
        ValueError: There are both ``countdown`` and ``eta``.
        DelayTooLong: The transport option ``max_delay`` does not allow a delay.
        kombu.exceptions.OperationalError: The broker has not answered for as long as ``apply_async`` would try.
    """
    refused = sorted(_REFUSED & options.keys())
    if refused:
        raise TypeError(f"send_many takes no option {', '.join(refused)} for all calls")
    shared: dict[str, Any] = {**options}
    if isinstance(shared.get("delay_chain"), DelayChain | str):
        shared["delay_chain"] = DelayChain.parse(shared["delay_chain"]).text
    due = _default_due(app, shared)
    complete = (_complete(call, due) for call in calls)
    target = Target(app, task, shared)
    count = 0
    for ids in _sent(target, complete):
        count += len(ids)
        if on_sent is not None:
            on_sent(ids)
    return count


def _default_due(app: "Celery[Any]", options: dict[str, Any]) -> dict[str, Any]:
    """Removes ``countdown``, ``eta`` and ``delay_level`` from options, and returns them as fields of ``Call``."""
    level = options.pop("delay_level", None)
    if level is not None:
        options["countdown"] = delay_of_level(app, level, options)
    due = {name: options.pop(name, None) for name in ("countdown", "eta")}
    if due["countdown"] is not None and due["eta"] is not None:
        raise ValueError("give either countdown or eta, not both")
    return {name: value for name, value in due.items() if value is not None}


def _complete(call: Call, due: Mapping[str, Any]) -> Call:
    """Returns a call, with the default due time if it has no due time of its own."""
    if not isinstance(call, Call):
        raise TypeError(f"calls are of the type celery_ext.Call, not {type(call).__name__}")
    if call.countdown is None and call.eta is None:
        return call._replace(**due) if due else call
    if call.countdown is not None and call.eta is not None:
        raise ValueError(f"a call has both countdown={call.countdown!r} and eta={call.eta!r}")
    return call


def _sent(target: Target, calls: Iterator[Call]) -> Iterator[list[str]]:
    """Sends calls, and yields the task ids of each page."""
    first = next(calls, None)
    if first is None:
        return
    calls = chain((first,), calls)
    shared, reason = None, target.why_one_by_one()
    if reason is None:
        try:
            shared = target.shared(first.args, first.kwargs)
        except NoTemplate as error:
            reason = str(error)
    if shared is None:
        logger.info("calls of task %s are sent one by one: %s", target.name, reason)
        for results in pages(map(target.call, calls), MAX_OFFERS):
            yield [str(result.id) for result in results]
        return
    with target.app.producer_or_acquire() as producer:
        messages = BulkMessages(target, shared, producer.connection.transport.options)
    with closing(BulkSender(target.app, shared, have_chain=CHAIN in target.options)) as sender:
        yield from sender.sent(pages(map(messages.of, calls), MAX_OFFERS, MAX_BYTES, attrgetter("size")))
