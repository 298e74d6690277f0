"""What metrics, the API and the page say of queues whose messages are held back, or were too late."""

import redis
from celery import Celery
from starlette.testclient import TestClient

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.serve import asgi
from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import PAST_MS, waiting
from tests.support.workers.held import KEYS

LIMITS = Options(transfer_rate={"sms": [5, 1]}, overdue={"news": "drop"}, max_lateness=60)


def test_held_back_messages_and_late_ones_are_shown(redis_server: PrivateRedis, raw_client: redis.Redis) -> None:
    """They have the rate, how many messages it holds back and until when, and how many were dropped."""
    store = DelayStore(raw_client, KEYS, options=LIMITS)
    store.delivery.offer("sms", *(waiting(str(number), PAST_MS) for number in range(51)))
    store.delivery.offer("news", *(waiting(str(number), PAST_MS) for number in range(3)))
    for queue in ("sms", "news"):
        store.queues.know(queue)
        store.delivery.transfer(queue)
    app = Celery("shop", broker=redis_server.url, set_as_current=False)
    app.conf.broker_transport = "kombu_delayq.transport:Transport"
    with TestClient(asgi(app, anonymous=True)) as client:
        rows = {row["queue"]: row for row in client.get("/v1/queues").json()["queues"]}
        scale = client.get("/scale", params={"queue": "sms", "ahead": "4s"}).json()
        metrics = client.get("/metrics").text
        page = client.get("/queues/sms").text
        late_page = client.get("/queues/news").text
    app.close()
    assert (rows["sms"]["held_back"]["per_s"], rows["sms"]["held_back"]["burst"]) == (5, 1)
    assert rows["news"]["held_back"] is None
    assert rows["news"]["too_late"] == {"dropped": 3, "dead-lettered": 0}
    assert (scale["ready"], scale["overdue"], scale["value"]) == (1, 20, 21)
    assert 'delayq_held_back_messages{queue="sms"} 50.0' in metrics
    assert 'delayq_too_late_messages_total{outcome="dropped",queue="news"} 3.0' in metrics
    assert "held back by its rate, 50 wait, at 5/s, until about" in page
    assert "3 dropped so far" in late_page
