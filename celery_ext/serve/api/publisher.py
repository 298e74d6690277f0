"""Publishes the tasks of many requests at once: what comes while Redis stores a page goes into the next one."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from queue import Empty, Full, Queue
from socket import gaierror
from threading import Thread
from time import sleep, time
from typing import NamedTuple
from uuid import uuid4

from kombu.exceptions import OperationalError
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_ext.publish import Call, waits_in_redis
from celery_ext.serve.api.recipes import WRONG, RequestRecipe, refused
from celery_ext.serve.problems import Problem, unavailable
from celery_ext.serve.service import ServeBroker
from kombu_delayq.errors import StoreUnavailable
from kombu_delayq.message import Once, ms_of, once, pages
from kombu_delayq.publish_batch import MAX_BYTES, MAX_OFFERS
from kombu_delayq.redis import is_full
from kombu_delayq.store import Offer, PageId

logger = logging.getLogger(__name__)

#: Most orders that wait for the thread. More come in than Redis stores, so the next ones are refused.
MAX_WAITING = 10_000
#: Most messages that one round takes together, so that the first caller does not wait for the last.
ROUND = 1_000
#: How often a page is sent when the connection is lost, and the pause before each further time, in s.
TRIES, PAUSE_S = 3, 0.1


#: Kinds of problems with which the next page would meet the same.
OUTAGES = ("answer-lost", "broker-unavailable")
#: Errors of a connection over which no command went.
_BEFORE_ALL = (ConnectionRefusedError, gaierror, AuthenticationError, BusyLoadingError)


class SentTask(NamedTuple):
    """A task that Redis has.

    Attributes:
        id: Task id.
        due_ms: When it is due, ms since the epoch; None if it is in its queue.
        became: With ``if_waiting``: what became of it. Of one that was ``kept``, nobody knows when it is due.
    """

    id: str
    due_ms: float | None
    became: Once | None = None


class Item(NamedTuple):
    """A task to publish.

    Attributes:
        recipe: Makes its message.
        call: The call.
        expires: Its own expiry, or None.
        headers: Its own headers.
    """

    recipe: RequestRecipe
    call: Call
    expires: object
    headers: dict[str, str]

    def offer(self) -> Offer:
        """Makes the message, as ``ManyMessages.of`` does, of an item that can be in a page with others."""
        if self.recipe.messages is None:
            raise RuntimeError("Celery has to send these messages one by one")
        return self.recipe.messages.of(self.call, expires=self.expires, headers=self.headers)

    @property
    def id(self) -> str:
        """Id of the task; empty if it gets a random one."""
        return self.call.task_id or ""

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.recipe.target.name


#: What becomes of an item.
Result = SentTask | Problem


class Order(NamedTuple):
    """The items of one request, and who waits for them."""

    items: Sequence[Item]
    done: "asyncio.Future[list[Result]]"


class Publisher:
    """Publishes items in one thread.

    Args:
        broker: The broker of the server.
    """

    def __init__(self, broker: ServeBroker) -> None:
        self._broker = broker
        self._orders: Queue[Order | None] = Queue(MAX_WAITING)
        self._page = PageId(uuid4().hex, 0)
        self._thread = Thread(target=self._run, name="delayq-publisher", daemon=True)
        self._thread.start()

    def publish(self, items: Sequence[Item]) -> "asyncio.Future[list[Result]]":
        """Publishes items, from an event loop. The result has an entry for each.

        Raises:
            Problem: 503: too many wait already.
        """
        done: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        try:
            self._orders.put_nowait(Order(items, done))
        except Full:
            raise unavailable("more tasks come in than Redis stores; nothing of this request was enqueued") from None
        return done

    def close(self) -> None:
        """Ends the thread, after all orders."""
        self._orders.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            orders, count, ends = [order], len(order.items), False
            while count < ROUND and not ends:
                try:
                    another = self._orders.get_nowait()
                except Empty:
                    break
                if another is None:
                    ends = True
                else:
                    orders.append(another)
                    count += len(another.items)
            try:
                self._round(orders)
            except Exception:  # the thread goes on, whatever has failed
                logger.exception("the callers of %d requests get no answer", len(orders))
            if ends:
                return

    def _round(self, orders: list[Order]) -> None:
        results: list[list[Result]]
        try:
            results = self._published(orders)
        except Exception as error:  # the callers get an answer, and the thread goes on
            logger.exception("tasks could not be published")
            results = [[_failure(error, len(order.items), is_sent=True)] * len(order.items) for order in orders]
        by_loop = defaultdict(list)
        for order, result in zip(orders, results, strict=True):
            by_loop[order.done.get_loop()].append((order.done, result))
        for loop, done in by_loop.items():
            try:
                loop.call_soon_threadsafe(_answer, done)
            except RuntimeError:  # the loop is closed, so nobody waits any more
                logger.debug("%s answers have nobody who waits for them", len(done))

    def _published(self, orders: list[Order]) -> list[list[Result]]:
        results: list[list[Result]] = []
        places: defaultdict[tuple[str, int], list[tuple[Offer, list[Result], int]]] = defaultdict(list)
        uses_chains = False
        for order in orders:
            own: list[Result] = []
            for at, item in enumerate(order.items):
                try:
                    offer = item.offer()
                except WRONG as error:  # the arguments are wrong, or the delay is too long
                    own.append(refused(error))
                    continue
                own.append(SentTask(str(offer.id), float(offer.due) if offer.due else None))
                places[item.recipe.queue, item.recipe.expire_ms].append((offer, own, at))
                uses_chains = uses_chains or item.recipe.has_chain
            results.append(own)
        failure: Problem | None = None
        for (queue, expire_ms), rows in places.items():
            for page in pages(rows, MAX_OFFERS, MAX_BYTES, lambda row: row[0].size):
                if failure is not None and failure.kind in OUTAGES:
                    failure = _away()  # the pages to come would only wait as long, for the same error
                else:
                    failure = self._put(queue, expire_ms, [offer for offer, _, _ in page], uses_chains=uses_chains)
                if failure is not None:
                    for _, own, at in page:
                        own[at] = failure
        return results

    def _put(self, queue: str, expire_ms: int, offers: list[Offer], *, uses_chains: bool) -> Problem | None:
        """Publishes a page. If the connection is lost, sends it again: Redis recognizes it."""
        self._page = self._page._replace(number=self._page.number + 1)
        is_sent = False
        for attempt in range(1, TRIES + 1):
            try:
                store = self._broker.store
                if uses_chains:
                    store.chains.use_chains()
                store.delivery.put(queue, self._page, offers, expire_ms)
            except StoreUnavailable as error:  # before Redis got anything
                logger.warning(
                    "%s tasks could not be enqueued: the %s's database fails: %s",
                    len(offers),
                    error.feature,
                    type(error).__name__,
                )
                detail = f"the database of the {error.feature} does not answer, so the task may be enqueued or not"
                return unavailable(detail, f"{error.feature}-unavailable", outcome="unknown")
            except (RedisConnectionError, RedisTimeoutError, OSError, OperationalError) as error:
                self._broker.lost()
                is_sent = is_sent or not _never_left(error)
                if attempt == TRIES or isinstance(error, (RedisTimeoutError, TimeoutError)):
                    return _failure(error, len(offers), is_sent=is_sent)
                sleep(PAUSE_S * attempt)
            except RedisError as error:
                return _failure(error, len(offers), is_sent=False)
            else:
                return None
        return None


def send_alone(item: Item) -> Result:
    """Lets Celery send an item by itself."""
    target, due = item.recipe.target, item.call.eta
    own = {"expires": item.expires, "headers": dict(item.headers) or None, "router": item.recipe.route}
    once.became.set(None)
    try:
        result = target.call(item.call, **{name: value for name, value in own.items() if value is not None})
        # A result backend that listens for the results of what this process sends would listen for ever.
        forget = getattr(result.backend, "on_result_fulfilled", None)
        if forget is not None and not result.ignored:
            forget(result)
    except (OperationalError, RedisConnectionError, RedisTimeoutError, OSError) as error:
        return _failure(error, 1, is_sent=not _never_left(error))
    except RedisError as error:
        return _failure(error, 1, is_sent=False)
    except WRONG as error:
        return refused(error)
    due_ms = ms_of(due) if isinstance(due, datetime) and waits_in_redis(target.app) else 0.0
    found = once.became.get() or once.Became("added", str(result.id))
    return SentTask(found.id, due_ms if due_ms > time() * 1000 else None, found.outcome)


def _failure(error: Exception, count: int, *, is_sent: bool) -> Problem:
    """Returns why a page of messages was not stored, or, if Redis may have got it, may not be."""
    logger.warning("%s tasks could not be enqueued: %s: %s", count, type(error).__name__, error)
    if is_full(error):
        return unavailable("Redis is full; nothing was enqueued", "broker-full", 507, outcome="refused")
    if is_sent:
        detail = "the connection to Redis was lost before it answered, so the task may be enqueued or not"
        return unavailable(detail, "answer-lost", outcome="unknown")
    if isinstance(error, ResponseError):
        return unavailable("Redis refuses; nothing was enqueued", "broker-refuses", outcome="refused")
    return _away()


def _away() -> Problem:
    return unavailable("Redis does not answer; nothing was enqueued", outcome="refused")


def _never_left(error: BaseException | None) -> bool:
    """Whether an error can only come from a connection that was never made."""
    while error is not None:
        if isinstance(error, _BEFORE_ALL):
            return True
        error = error.__cause__ or error.__context__
    return False


def _answer(done: "list[tuple[asyncio.Future[list[Result]], list[Result]]]") -> None:
    for future, result in done:
        if not future.done():
            future.set_result(result)
