"""What a job waits for, by the errors of a real server and its client."""

from collections.abc import Callable

import pytest
import redis
from redis.exceptions import BusyLoadingError, RedisError

from celery_ext.demo.private_redis import PrivateRedis
from celery_ext.spark.broker import Broker, Retry, is_temporary
from celery_ext.spark.errors import BrokerUnavailable

#: Commands that bring a server into a state in which it takes no writes, and those that end it.
STATES = {
    "full": ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
    "a replica": ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
    "without replicas": ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
}
WRITES: dict[str, Callable[[redis.Redis], object]] = {
    "a command": lambda client: client.set("key", "value"),
    "a script": lambda client: client.eval("return redis.call('SET', KEYS[1], 'value')", 1, "key"),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("state", STATES)
def test_what_takes_no_writes_just_now_is_waited_for(own_server: PrivateRedis, state: str, write: str) -> None:
    """A job tries again for as long as a server takes no writes, be it by a command or in a script."""
    store = Broker(own_server.url, None, {}).connect()
    client, (begin, end), refusals = store.client, STATES[state], []
    client.execute_command(*begin.split())

    def call() -> object:
        try:
            return WRITES[write](client)
        except RedisError as error:
            refusals.append(error)
            if len(refusals) == 2:
                client.execute_command(*end.split())
            raise

    Retry(60).until_done(call)
    assert len(refusals) == 2
    assert client.get("key") == b"value"
    store.close()


def test_a_server_out_of_reach_is_waited_for(own_server: PrivateRedis) -> None:
    """A server that is gone, or loads its data, may be there at the next try."""
    client = own_server.client()
    own_server.stop()
    with pytest.raises(RedisError) as caught:
        client.ping()
    assert is_temporary(caught.value)
    assert is_temporary(BusyLoadingError("Redis is loading the dataset in memory"))


def test_what_stays_wrong_is_not_waited_for(client: redis.Redis) -> None:
    """A key of another type fails a job at once."""
    client.set("key", "value")
    with pytest.raises(RedisError, match=r"WRONGTYPE|wrong kind"):
        Retry(60).until_done(lambda: client.lpush("key", "value"))


def test_waiting_ends_after_the_timeout(caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be done for as long as ``write_timeout`` says fails with its reason, which was logged once before."""

    def call() -> None:
        raise BrokerUnavailable("it sleeps")

    with pytest.raises(BrokerUnavailable, match=r"0\.2 s.*write_timeout.*it sleeps"):
        Retry(0.2).until_done(call)
    assert [record.message for record in caplog.records] == [
        "tries again, for up to 0.2 s, the option write_timeout: it sleeps"
    ]
