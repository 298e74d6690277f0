"""Sends many calls of one task at once, in a fraction of the time that as many ``apply_async`` take."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack
from uuid import uuid4

from kombu.exceptions import OperationalError
from kombu.log import get_logger
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_ext.delays import DelayChain, delay_of_level
from celery_ext.publish.recipe import Call, Recipe, Target
from celery_ext.publish.template import NoTemplate
from celery_ext.publish.write import NOTHING, Own, Uuids, Writer
from celery_ext.typing import SharedOptions
from kombu_delayq.message import CHAIN_ID, DELAY_SECONDS, Became, Once, became, pages
from kombu_delayq.publish_batch import MAX_BYTES, MAX_OFFERS, PutAhead
from kombu_delayq.store import Offer, PageId

if TYPE_CHECKING:
    from celery import Celery


logger = get_logger(__name__)

T = TypeVar("T")

#: Options of ``apply_async`` and ``send_task`` that belong to a single call, or that only Celery itself passes.
_REFUSED = frozenset(
    (
        *("args", "kwargs", "task_id", "producer", "publisher", "connection", "router", "result_cls", "add_to_parent"),
        *("chain", "chord", "group_index", "retries", "replaced_task_nesting", "waiting_key", DELAY_SECONDS, CHAIN_ID),
    )
)


def send_many(
    app: "Celery[Any]",
    task: Any,
    calls: Iterable[Call],
    *,
    on_sent: Callable[[list[str]], object] | None = None,
    on_outcomes: Callable[[list[tuple[str, Once]]], object] | None = None,
    **options: Unpack[SharedOptions],
) -> int:
    """Sends many calls of a task, each as ``apply_async`` would send it.

    The calls are read and sent a page of at most 100 at a time, so there may be any number of them.

    Args:
        app: Any app.
        task: A task of the app, or the name of any task.
        calls: The arguments, due time and task id of every call.
        on_sent: Called after each page with its task ids, in the order of the calls.
        on_outcomes: Called after each page, too, with what became of each call beside the id of the task that waits:
            ``added``, or with ``if_waiting`` also ``kept`` or ``replaced``.
        **options: Options of ``apply_async`` for all calls, such as ``queue``, ``priority``, ``expires`` or ``link``.
            ``countdown``, ``eta`` or ``delay_level`` are for calls that have neither ``countdown`` nor ``eta``, and
            ``limit`` for those without their own.

    Returns:
        Number of calls sent, those that were kept out among them.

    Raises:
        TypeError: ``task`` is neither, or an option cannot be shared by many calls, and nothing was sent; or an item of
            ``calls`` is no ``Call``; or the task does not take the arguments of a call.
        ValueError: There are both ``countdown`` and ``eta``.
        InvalidIfWaiting: ``if_waiting`` is no mode, or a call has neither a task id nor a key.
        InvalidLimit: A ``limit`` is no key, or that of the task cannot be made of the arguments of a call.
        DelayTooLong: The transport option ``max_delay`` does not allow a delay.
        kombu.exceptions.OperationalError: The broker has not answered for as long as ``apply_async`` would try.
    """
    refused = sorted(_REFUSED & options.keys())
    if refused:
        raise TypeError(f"send_many takes no option {', '.join(refused)} for all calls")
    if isinstance(task, Mapping) or not isinstance(getattr(task, "name", task), str):  # such as a signature
        raise TypeError(f"send_many takes a task or the name of one, not {type(task).__name__}")
    shared: dict[str, Any] = {**options}
    if isinstance(shared.get("delay_chain"), DelayChain | str):
        shared["delay_chain"] = DelayChain.parse(shared["delay_chain"]).text
    due = _default_due(app, shared)
    complete = (_complete(call, due) for call in calls)
    target = Target(app, task, shared)
    count = 0
    for ids, outcomes in _sent(target, complete):
        count += len(ids)
        if on_sent is not None:
            on_sent(ids)
        if on_outcomes is not None:
            on_outcomes([(one, outcomes[at] if outcomes else "added") for at, one in enumerate(ids)])
    return count


class SentPage(NamedTuple):
    """A page of calls that Redis has.

    Attributes:
        ids: Their task ids.
        outcomes: What became of each; empty where all were added.
    """

    ids: list[str]
    outcomes: Sequence[Once] = ()


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


def _sent(target: Target, calls: Iterator[Call]) -> Iterator[SentPage]:
    """Sends calls, and yields each page that was sent."""
    first = next(calls, None)
    if first is None:
        return
    calls = chain((first,), calls)
    recipe, reason = None, target.why_one_by_one()
    if reason is None:
        try:
            recipe = target.recipe(first.args, first.kwargs)
        except NoTemplate as error:
            reason = str(error)
    if recipe is None:
        logger.info("calls of task %s are sent one by one: %s", target.name, reason)
        for sent in pages(map(partial(_sent_alone, target), calls), MAX_OFFERS):
            yield SentPage([identity for identity, _ in sent], [outcome for _, outcome in sent])
        return
    messages = map(ManyMessages(target, recipe).of, map(target.with_id, calls))
    with closing(_Sender(target.app, recipe)) as sender:
        found = pages(messages, MAX_OFFERS, MAX_BYTES, attrgetter("size"))
        yield from sender.sent(found) if target.mode is None else sender.sent_once(found, target.mode)


def _sent_alone(target: Target, call: Call) -> tuple[str, Once]:
    """Sends a call as Celery does. Returns its task id, and what became of it."""
    became.set(None)
    task_id, found = str(target.call(call).id), became.get()
    return task_id, found.outcome if found is not None else "added"


class _Sender:
    """Sends the messages of one ``send_many``. A page is on its way while the next one is made."""

    def __init__(self, app: "Celery", recipe: Recipe) -> None:
        self._app = app
        self._recipe = recipe
        self._ahead: PutAhead | None = None
        #: The page that is on its way.
        self._page: Sequence[Offer] = ()
        #: Id of the latest page that was begun.
        self._page_id = PageId(uuid4().hex, 0)

    def sent_once(self, pages: Iterator[Sequence[Offer]], mode: str) -> Iterator[SentPage]:
        """Sends pages of calls that are compared with what waits, and yields each once Redis has it."""
        queue = self._recipe.template.queue
        for page in pages:
            found = self._ensured(partial(_put_once, queue, page, mode))
            yield SentPage([one.id for one in found], [one.outcome for one in found])

    def sent(self, pages: Iterator[Sequence[Offer]]) -> Iterator[SentPage]:
        """Sends pages, and yields each once Redis has it.

        When a page cannot be made, the pages before it come first; then its error is raised.
        """
        declared = False
        while True:
            try:
                page = next(pages, ())
            except BaseException:  # such as of Ctrl-C
                yield from self._confirmed()
                raise
            yield from self._confirmed()
            if not page:
                return
            self._page_id = self._page_id._replace(number=self._page_id.number + 1)
            if declared:
                with self._resending(page):
                    self._open().put(self._page_id, page)
            else:  # The first page declares queues. Often it is the only page.
                self._publish(page)
                declared = True
            self._page = page

    def close(self) -> None:
        """Closes the connection of the sender, if there is one."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()

    def _confirmed(self) -> Iterator[SentPage]:
        page, self._page = self._page, ()
        if page:
            if self._ahead is not None:
                with self._resending(page):
                    self._ahead.confirm()
            yield SentPage([str(offer.id) for offer in page])

    def _open(self) -> PutAhead:
        if self._ahead is None:
            with self._app.producer_or_acquire() as producer:
                self._ahead = PutAhead(producer.channel, self._recipe.template.queue)
        return self._ahead

    @contextmanager
    def _resending(self, page: Sequence[Offer]) -> Iterator[None]:
        """Sends a page again if the connection is lost in the block. The next page gets a new connection.

        If Redis has the page already, it stores nothing again. With ``retry=False`` no page is sent again: the error is
        raised as an ``OperationalError``.
        """
        try:
            yield
        except (RedisConnectionError, RedisTimeoutError, OSError) as error:
            self.close()
            if self._recipe.retry_policy is None:
                raise OperationalError(str(error)) from error
            self._publish(page)

    def _publish(self, page: Sequence[Offer]) -> None:
        """Sends a page, and sends it again if the connection is lost."""
        self._ensured(lambda channel: channel.put_many(self._recipe.template.queue, self._page_id, page))

    def _ensured(self, send: Callable[[Any], T]) -> T:
        """Sends over a channel, and again if the connection is lost. Source: kombu.messaging.Producer.publish."""
        policy = self._recipe.retry_policy
        with self._app.producer_or_acquire() as producer:

            def put() -> T:
                for queue in self._recipe.declare:
                    producer.maybe_declare(queue)
                if self._recipe.in_chain:
                    producer.channel.store.chains.use_chains()
                return send(producer.channel)

            if policy is not None:
                producer.connection.transport_options.update(policy)
            sent: T = producer.connection.ensure(producer, put, **({"max_retries": 0} if policy is None else policy))()
            return sent


def _put_once(queue: str, page: Sequence[Offer], mode: str, channel: Any) -> list[Became]:
    found: list[Became] = channel.put_many_once(queue, page, mode)
    return found


class ManyMessages:
    """Makes the messages of many calls of a task, for one thread.

    Args:
        target: The task that is called.
        recipe: How its messages are made.
    """

    def __init__(self, target: Target, recipe: Recipe) -> None:
        self._target, self._has_limit = target, target.has_limit
        has_signature = getattr(target.task, "typing", False)
        self._check_signature = getattr(target.task, "__header__", None) if has_signature else None
        self._expires = target.expires
        self._own = Own(argsrepr=target.options.get("argsrepr"), kwargsrepr=target.options.get("kwargsrepr"))
        self._draw = Uuids().draw
        self._writer = Writer(target.app, recipe, self._draw)
        self._plain = self._writer.plain if self._own == NOTHING else None

    def of(self, call: Call, *, expires: Any = None, headers: Mapping[str, Any] | None = None) -> Offer:
        """Makes the message of a call. The due time of the offer is empty when the task is due at once.

        Args:
            call: The call.
            expires: Its own expiry, in a form that Celery takes, if the template has one at all.
            headers: Its own headers, beside those of the template.

        Raises:
            TypeError: The task does not take the arguments.
            InvalidLimit: As of ``Target.headers_of``.
            DelayTooLong: As of ``Writer.write``.
            kombu.exceptions.EncodeError: As of ``Writer.write``.
        """
        args, kwargs, countdown, eta, task_id, limit = call
        if self._check_signature is not None:
            self._check_signature(*(args or ()), **(kwargs or {}))
        expires = self._expires if expires is None else expires
        if self._has_limit or limit is not None:
            headers = self._target.headers_of(call, headers)
        if self._plain is not None and expires is None and not task_id:
            offer = self._plain.offer(args, kwargs, countdown, eta, headers)
            if offer is not None:
                return offer
        return self._writer.write(
            args,
            kwargs,
            task_id or self._draw(),
            is_new=not task_id,
            countdown=countdown,
            eta=eta,
            expires=expires,
            own=self._own._replace(headers=headers) if headers else self._own,
        )
