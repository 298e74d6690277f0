"""Names in the registry of queues, and in announcements, that are no names of queues of ours."""

import pytest
import redis

from kombu_delayq.options import Options
from kombu_delayq.store import DelayStore
from tests.support.conditions import until
from tests.support.workers.held import KEYS
from tests.support.workers.transfers import Transfer, arrived, offer

pytestmark = pytest.mark.both_layouts

QUEUES, WAKE = "{delayq}:queues", "delayq:wake:0"
BAD = [b"\xff\xfe", b"bad {\x80}", b"", b"\r\n*1", b"\0"]


@pytest.fixture
def store(client: redis.Redis, layout: str) -> DelayStore:
    return DelayStore(client, KEYS, options=Options(layout=layout))


def test_bad_names_do_not_stop_other_queues(
    store: DelayStore, client: redis.Redis, transfer: Transfer, caplog: pytest.LogCaptureFixture
) -> None:
    """Delivery goes on with odd names in the registry, in announcements, and with a key of another type under one."""
    client.sadd(QUEUES, *BAD)
    client.set(b"delayq:{\xff\xfe}:due", "in the way")
    transfer(poll_interval=0.2)
    until(lambda: client.pubsub_numsub(WAKE)[0][1])
    for name in BAD:
        client.publish(WAKE, b"0 " + name)
        client.publish(WAKE, name)
    offer(store, "one", 0.3)
    until(lambda: arrived(client) == {"one": 1})
    client.client_kill_filter(_type="pubsub")
    offer(store, "two", 0.3)
    until(lambda: arrived(client) == {"one": 1, "two": 1})
    named = [record for record in caplog.records if "\\udcff" in record.getMessage() and "WRONGTYPE" in record.message]
    assert len(named) == 1
    assert "starts again" not in caplog.text
    caplog.text.encode()  # as a log file takes it
