import pytest
import redis
from kombu import Connection, Consumer, Producer, Queue

from celery_ext.demo.private_redis import PrivateRedis
from tests.support.workers.harness import TRANSPORT
from tests.support.workers.held import in_hand


def test_a_message_taken_from_a_full_redis_is_not_lost(own_server: PrivateRedis) -> None:
    """A consumer that cannot note a message as unacked gives it back, says why, and gets it once there is memory."""
    client = own_server.client()
    received: list[str] = []

    def receive(body: str, message: object) -> None:
        received.append(body)

    with Connection(own_server.url, transport=TRANSPORT, transport_options={"transfer": False}) as connection:
        queue = Queue("q")(connection.default_channel)
        queue.declare()
        Producer(connection.default_channel).publish("hello", routing_key="q")
        with Consumer(connection.default_channel, [queue], callbacks=[receive]):
            client.config_set("maxmemory", 1)
            with pytest.raises(redis.ResponseError):
                connection.drain_events(timeout=20)
            assert (received, client.llen("q"), in_hand(client)) == ([], 1, 0)
            client.config_set("maxmemory", 0)
            connection.drain_events(timeout=20)
    assert received == ["hello"]
