"""What stays when another client takes the last message of Redisson's layout goes without a further message."""

import pytest
import redis

from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from tests.support.conditions import until, until_equal
from tests.support.workers.held import KEYS
from tests.support.workers.transfers import QUEUE, Transfer, listeners, offer


@pytest.mark.parametrize("layout", ["redisson"], indirect=True)
@pytest.mark.parametrize("workers", [1, 3])
def test_the_leader_removes_what_is_left(client: redis.Redis, transfer: Transfer, workers: int) -> None:
    """After another client has taken the last message, the leader removes the garbage and our notes."""
    store = DelayStore(client, KEYS, options=Options(layout="redisson"))
    for number in range(200):
        offer(store, str(number), 3000)
    store.lookup.cancel([QUEUE], [str(number) for number in range(0, 200, 2)])
    transfer(workers, poll_interval=0.2)
    until(lambda: listeners(client, "redisson") == workers, what="all have looked at the queue")
    stored = KEYS.stored(QUEUE, "redisson")
    assert client.exists(*stored) == 4
    assert client.llen(KEYS.listed(QUEUE)) > 100, "there is garbage"
    client.delete(KEYS.timeout(QUEUE))
    until_equal(lambda: client.exists(*stored), 0, what="no key of the queue")
