"""Sends pages of messages. A page is on its way while the next one is made."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from kombu.exceptions import OperationalError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from celery_ext.bulk.target import Shared
from kombu_delayq.store.types import Offer, PageId

if TYPE_CHECKING:
    from celery import Celery

    from kombu_delayq.publish_batch import PutAhead


class BulkSender:
    """Sends the messages of one ``send_many``.

    Args:
        app: The sender uses the connections of this app.
        shared: The common parts of all messages.
        have_chain: Whether the messages have a delay chain.
    """

    def __init__(self, app: "Celery", shared: Shared, *, have_chain: bool = False) -> None:
        self._app = app
        self._have_chain = have_chain
        self._shared = shared
        self._ahead: PutAhead | None = None
        #: The page that is on its way.
        self._page: Sequence[Offer] = ()
        #: Id of the latest page that was begun.
        self._page_id = PageId(uuid4().hex, 0)

    def sent(self, pages: Iterator[Sequence[Offer]]) -> Iterator[list[str]]:
        """Sends pages, and yields the task ids of each page once Redis has it.

        When a page cannot be made, the pages before it come first; then its error is raised.
        """
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

    def _confirmed(self) -> Iterator[list[str]]:
        page, self._page = self._page, ()
        if page:
            if self._ahead is not None:
                with self._resending(page):
                    self._ahead.confirm()
            yield [str(offer.id) for offer in page]

    def _open(self) -> "PutAhead":
        if self._ahead is None:
            with self._app.producer_or_acquire() as producer:
                self._ahead = producer.channel.put_ahead(self._shared.template.queue)
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
            if self._shared.retry_policy is None:
                raise OperationalError(str(error)) from error
            self._publish(page)

    def _publish(self, page: Sequence[Offer]) -> None:
        """Sends a page, and sends it again if the connection is lost. Source: kombu.messaging.Producer.publish."""
        policy = self._shared.retry_policy
        with self._app.producer_or_acquire() as producer:

            def put() -> None:
                for queue in self._shared.declare:
                    producer.maybe_declare(queue)
                if self._have_chain:
                    producer.channel.store.chains.use_chains()
                producer.channel.put_many(self._shared.template.queue, self._page_id, page)

            if policy is not None:
                producer.connection.transport_options.update(policy)
            producer.connection.ensure(producer, put, **({"max_retries": 0} if policy is None else policy))()
