"""Consumers over HTTP where an ACL limits the server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.serve.http_consumers import HttpConsumer, Served
from tests.support.servers.acl import denials, url_of, users
from tests.support.workers.harness import TRANSPORT

__all__ = ["users"]

#: Those that the page of rights names for servers, without those for the audit.
RIGHTS = ("~_kombu.binding*", "+exists", "+hset", "+hvals", "+sismember", "+zmscore")


@pytest.fixture
def limited(users: PrivateRedis, tmp_path: Path) -> Iterator[Served]:
    """A server with the rights of the user ``caretaker`` and those that consumers over HTTP need."""
    users.client().execute_command("ACL", "SETUSER", "caretaker", *RIGHTS)
    served = Served(url_of(users, "caretaker"), tmp_path, {})
    yield served
    served.close()


def test_consumers_need_few_rights(users: PrivateRedis, limited: Served) -> None:
    """With what the page of rights says, messages are taken, put off, released, extended and acknowledged."""
    consumer = HttpConsumer(limited)
    with Celery("producer", broker=users.url, set_as_current=False) as app:
        app.conf.update(broker_transport=TRANSPORT, task_ignore_result=True)
        for _ in range(3):
            app.send_task("t", queue="celery.mails")
    taken = consumer.take("celery.mails", max=9)
    consumer.of(taken, "release", tags=["1"])
    consumer.of(taken, "release", tags=["2"], delay=60)
    consumer.of(taken, "extend", seconds=30)
    consumer.ack(taken, "3")
    consumer.ack(consumer.take("celery.mails", wait="1s"))
    assert consumer.take("celery.mails", wait="0.2s")["lease"] is None
    assert denials(users) == []
