"""``note_use.lua``: notes that a queue is in use, apart from its own keys."""

import pytest
from redis.exceptions import ResponseError

from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import contents

QUEUES, USED = "delayq:queues", "delayq:used"


def test_a_known_time_of_use_is_renewed(store: DelayStore) -> None:
    """A queue whose use is noted gets the time of now; in Redisson's layout its name becomes known as well."""
    store.client.zadd(USED, {"q": 1.0})
    store.queues.note_use("q")
    assert store.client.zscore(USED, "q") > store.now_ms() - 60_000
    assert store.queues.names() == (["q"] if store.layout == "redisson" else [])


def test_an_unknown_queue_leaves_no_time(store: DelayStore) -> None:
    """Nothing is noted of the use of a queue that nobody has noted before."""
    store.queues.note_use("q")
    assert USED.encode() not in contents(store.client)


def test_a_key_of_the_wrong_type_is_named(store: DelayStore) -> None:
    """Where somebody else's key is in the way, the error names it."""
    store.client.rpush(QUEUES, "somebody else's")
    with pytest.raises(ResponseError, match=r"WRONGTYPE key .*queues"):
        store.queues.note_use("q")
