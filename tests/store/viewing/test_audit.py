"""Who did what to waiting messages, as the store notes it."""

import pytest
from redis.exceptions import ResponseError

from celery_ext.demo.private_redis import PrivateRedis
from kombu_delayq.audit import MANY
from kombu_delayq.store import DelayStore
from kombu_delayq.store.viewing import audit
from tests.support.store.fixtures import MakeStore
from tests.support.store.keyspace import clock_ms

WHAT = {"queue": "ünïcödé", "ids": ["a", "b"], "from": None}


def test_what_was_noted_is_read_the_newest_first(store: DelayStore) -> None:
    """Lines come back as they were noted, with the time of Redis, and page by page."""
    began_ms = clock_ms(store.client)
    for number in range(5):
        assert store.audit.note("ada", "cancel", {**WHAT, "number": number}, 40 + number)
    lines = store.audit.recent()
    assert [(line.who, line.action, line.count) for line in lines] == [
        ("ada", "cancel", 40 + at) for at in (4, 3, 2, 1, 0)
    ]
    assert lines[0].what == {**WHAT, "number": 4}
    assert began_ms - 1 <= lines[-1].at_ms <= clock_ms(store.client)
    first = store.audit.recent(2)
    assert [*first, *store.audit.recent(3, first[-1].id)] == lines
    assert store.audit.recent(9, lines[-1].id) == store.audit.recent(0) == []


def test_a_change_of_many_messages_notes_that_it_begins(store: DelayStore) -> None:
    """The line counts none; a change of fewer is over soon, and notes nothing before its end."""
    store.audit.note_begin("ada", "move", WHAT, MANY - 1)
    assert store.audit.recent() == []
    store.audit.note_begin("ada", "move", WHAT, MANY)
    [line] = store.audit.recent()
    assert (line.who, line.action, line.count) == ("ada", "move", 0)
    assert line.what == {**WHAT, "of": MANY, "begun": True}


def test_no_line_and_somebody_elses_line(store: DelayStore) -> None:
    """Nothing is noted at first; a line of another shape has what it has."""
    assert store.audit.recent() == []
    store.client.xadd(store.keys.audit, {"who": "bob", "what": "no JSON", "count": "7"})
    [line] = store.audit.recent()
    assert (line.who, line.action, line.what, line.count) == ("bob", "", {}, 0)


def test_a_cursor_that_is_none_is_refused(store: DelayStore) -> None:
    """Redis's own error says what is no id."""
    with pytest.raises(ResponseError, match="Invalid stream ID"):
        store.audit.recent(before="yesterday")


def test_old_lines_make_room(store: DelayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis keeps about as many lines as it is told to."""
    monkeypatch.setattr(audit, "MOST_LINES", 100)
    for number in range(500):
        store.audit.note("ada", "drop", {}, number)
    lines = store.audit.recent(1000)
    assert 100 <= len(lines) <= 250
    assert lines[0].count == 499


def test_a_note_that_redis_refuses_is_logged(
    make_store: MakeStore, own_server: PrivateRedis, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has what a full Redis does not keep, without what it was done to."""
    store = make_store(own_server)
    store.client.config_set("maxmemory", 1)
    assert not store.audit.note("ada", "drop", {"secret": "x"}, 3)
    assert "what ada did (drop, 3 messages) is not noted in Redis: command not allowed" in caplog.text
    assert "secret" not in caplog.text
