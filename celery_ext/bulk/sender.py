"""Sends pages of messages, each while the next is made."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from kombu.exceptions import OperationalError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_ext.bulk.target import Common
from kombu_delayq.store.types import Offer, PageId

if TYPE_CHECKING:
    from celery import Celery

    from kombu_delayq.publish_batch import PutAhead


class BulkSender:
    """Sends the messages of one ``send_many``.

    Args:
        app: Whose connections are used.
        common: What the messages have in common.
        have_chain: Whether they bring a delay chain.
    """

    def __init__(self, app: "Celery", common: Common, *, have_chain: bool = False) -> None:
        self._app = app
        self._have_chain = have_chain
        self._common = common
        self._ahead: PutAhead | None = None
        self._page: Sequence[Offer] = ()  # on its way
        self._id = PageId(uuid4().hex, 0)  # of the page that was begun last

    def sent(self, pages: Iterator[Sequence[Offer]]) -> Iterator[list[str]]:
        """Yields the ids of each page that Redis has. When a page cannot be made, those before it come first."""
        declared = False
        while True:
            try:
                page = next(pages, ())
            except Exception:
                yield from self._confirmed()
                raise
            yield from self._confirmed()
            if not page:
                return
            self._id = self._id._replace(number=self._id.number + 1)
            if declared:
                with self._or_again(page):
                    self._open().put(self._id, page)
            else:  # often the only one
                self._publish(page)
                declared = True
            self._page = page

    def close(self) -> None:
        """Closes its connection, if it has one."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()

    def _confirmed(self) -> Iterator[list[str]]:
        page, self._page = self._page, ()
        if page:
            if self._ahead is not None:
                with self._or_again(page):
                    self._ahead.confirm()
            yield [str(offer.id) for offer in page]

    def _open(self) -> "PutAhead":
        if self._ahead is None:
            with self._app.producer_or_acquire() as producer:
                self._ahead = producer.channel.put_ahead(self._common.template.queue)
        return self._ahead

    @contextmanager
    def _or_again(self, page: Sequence[Offer]) -> Iterator[None]:
        """Sends a page again when the connection is lost meanwhile, and the next over a new one.

        Redis may have the page already, and knows it again then. With ``retry=False`` nothing is sent again.
        """
        try:
            yield
        except (RedisConnectionError, RedisTimeoutError, OSError) as error:
            self.close()
            if self._common.retry_policy is None:
                raise OperationalError(str(error)) from error
            self._publish(page)

    def _publish(self, page: Sequence[Offer]) -> None:
        """Sends a page as ``Producer.publish`` of kombu does a message: again when the connection is lost meanwhile."""
        policy = self._common.retry_policy
        with self._app.producer_or_acquire() as producer:

            def put() -> None:
                for queue in self._common.declare:
                    producer.maybe_declare(queue)
                if self._have_chain:
                    producer.channel.store.chains.use_chains()
                producer.channel.put_many(self._common.template.queue, self._id, page)

            if policy is not None:
                producer.connection.transport_options.update(policy)
            producer.connection.ensure(producer, put, **({"max_retries": 0} if policy is None else policy))()
