"""``journal_heartbeat.lua``: the heartbeat of a journal's marker, which tells whether Redis has lost data."""

from unittest.mock import ANY

import pytest

from celery_ext.journal.promotion import ALL, MarkerHeartbeat, Promotion
from kombu_delayq.store import DelayStore
from kombu_delayq.text import as_text
from tests.support.store.keyspace import contents
from tests.support.store.promoting import JOURNAL_ID, MARKER, elected


def sent(store: DelayStore, journal: str, token: int, heartbeat: int, compared: str = "") -> MarkerHeartbeat:
    """Sends a heartbeat to the marker of all."""
    return store.part(Promotion).journal_heartbeat(journal, token, heartbeat, [ALL], {ALL: compared})[ALL]


def test_the_marker_follows_the_journal(store: DelayStore) -> None:
    """The heartbeat of the promoter that leads is set, and the time is Redis's."""
    token = elected(store, heartbeat=5)
    before_ms = store.now_ms()
    heartbeat = sent(store, JOURNAL_ID, token, 6)
    assert (heartbeat.word, heartbeat.token) == ("sound", token)
    assert before_ms <= heartbeat.now_ms <= store.now_ms()
    assert store.part(Promotion).marker() == (JOURNAL_ID, token, 1, 6, str(token))
    assert sent(store, JOURNAL_ID, token, 6).word == "sound"


@pytest.mark.parametrize(
    ("id_", "later", "heartbeat", "word"),
    [
        (JOURNAL_ID, 0, 7, "behind"),  # the heartbeats in between are lost
        (JOURNAL_ID, 1, 6, "behind"),  # the token of the caller is lost
        (JOURNAL_ID, -1, 6, "superseded"),
        ("another", 0, 6, "other"),
    ],
)
def test_a_redis_of_another_state_is_left_alone(
    store: DelayStore, id_: str, later: int, heartbeat: int, word: str
) -> None:
    """A state that is older, a later promoter and another journal are told apart, and nothing changes."""
    token = elected(store, heartbeat=5)
    before = contents(store.client)
    heartbeat = sent(store, id_, token + later, heartbeat)
    assert (heartbeat.word, heartbeat.token) == (word, token)
    assert contents(store.client) == before


def test_an_empty_redis_is_lost(store: DelayStore) -> None:
    """Without a marker the data are lost."""
    assert sent(store, JOURNAL_ID, 7, 1)[:2] == ("lost", 0)
    assert contents(store.client) == {}


def test_another_server_is_to_be_compared(store: DelayStore) -> None:
    """After a restart or a failover the marker is another server's, until the caller has compared this one."""
    token = elected(store, heartbeat=5)
    own = as_text(store.client.hget(MARKER, "server"))
    assert (bool(own), sent(store, JOURNAL_ID, token, 6).server) == (True, "")
    store.client.hset(MARKER, "server", "one that failed")
    for compared in ("", "one that failed"):
        assert sent(store, JOURNAL_ID, token, 6, compared) == ("sound", token, ANY, own)
    assert sent(store, JOURNAL_ID, token, 6, own).server == ""
    assert as_text(store.client.hget(MARKER, "server")) == own
