"""A server whose broker URL names several brokers."""

from celery import Celery
from starlette.testclient import TestClient

from celery_ext.connection import TRANSPORT
from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve import asgi


def test_a_server_goes_on_with_the_next_broker() -> None:
    """When its broker ends, one call fails, and the next ones are answered by another broker of the list."""
    with PrivateRedis() as first, PrivateRedis() as second:
        app = Celery("shop", broker=f"{first.url};{second.url}", set_as_current=False)
        app.conf.update(broker_transport=TRANSPORT, task_ignore_result=True)
        client = TestClient(asgi(app, anonymous=True), base_url="http://localhost")
        assert client.get("/v1/queues").json()["redis"]
        second.client().sadd("{delayq}:queues", "of the second")
        first.stop()
        assert client.get("/v1/queues").status_code == 503
        names = [row["queue"] for row in client.get("/v1/queues").json()["queues"]]
        assert "of the second" in names
