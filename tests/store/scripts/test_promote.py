"""``promote.lua``: puts rows of a journal into the store, each once."""

import pytest

from celery_ext.journal import promotion
from celery_ext.journal.promotion import PromotedRows, Promotion
from kombu_delayq.store import DelayStore
from kombu_delayq.store.layouts import LAYOUT_OF
from tests.support.store.keyspace import FUTURE_MS, Ear, announced, contents, look, waiting
from tests.support.store.promoting import GUARD, JOURNAL_ID, elected, numbers, row, several_rows


def test_a_row_comes_into_the_store(store: DelayStore) -> None:
    """A row is kept as an offer is, under its id, its queue is registered, and the guard has it as pushed."""
    token = elected(store)
    before_ms = store.now_ms()
    assert store.part(Promotion).promote(JOURNAL_ID, token, [row(1, priority=3)]) == PromotedRows(
        "promoted", {1: "promoted"}
    )
    assert look(store)[b"waiting in q"] == [("i1", FUTURE_MS, 3, b"body of i1")]
    assert store.queues.names() == ["q"]
    note = store.client.hget(GUARD, "1")
    assert note[:1] == b"p"
    assert before_ms - 1 <= float(note[1:]) <= store.now_ms()


@pytest.mark.parametrize("between", ["nothing", "settled", "held", "claimed", "pushed"])
def test_a_held_row_comes_if_nobody_touched_it(store: DelayStore, between: str) -> None:
    """Under a hold a row comes only if nobody pushed, claimed or held it meanwhile, also if it left the guard since."""
    token = elected(store)
    assert store.part(Promotion).claim_rows(numbers(1), "mine") == {1: "held"}
    if between in ("settled", "pushed"):
        assert store.part(Promotion).promote(JOURNAL_ID, token, [row(1)]).words == {1: "promoted"}
        store.lookup.cancel(["q"], ["i1"])
    if between == "settled":
        store.part(Promotion).settle_rows(JOURNAL_ID, token, numbers(1))
    elif between == "held":
        store.part(Promotion).claim_rows(numbers(1), "theirs")
    elif between == "claimed":
        assert store.part(Promotion).claim_rows(numbers(1)) == {1: "claimed"}
    words = {"nothing": "promoted", "settled": "free", "held": "free"}
    assert store.part(Promotion).promote(JOURNAL_ID, token, [row(1)], "mine").words == {1: words.get(between, between)}
    assert store.queues.size("q") == (between == "nothing")


def test_duplicates_are_kept_apart(store: DelayStore) -> None:
    """Rows of one id with other bytes, and one beside a message of the store, all wait."""
    token = elected(store)
    store.delivery.offer("q", waiting("i1", body="in Redis"))
    rows = [row(1, body="one"), row(2, body="two")._replace(id="i1")]
    assert set(store.part(Promotion).promote(JOURNAL_ID, token, rows).words.values()) == {"promoted"}
    assert {message[3] for message in look(store)[b"waiting in q"]} == {b"in Redis", b"one", b"two"}
    assert {message.body for message in store.lookup.cancel(["q"], ["i1"])["i1"]} == {b"in Redis", b"one", b"two"}


def test_rows_of_several_queues_go_where_they_belong(store: DelayStore, ear: Ear) -> None:
    """Rows of any queues may be mixed; each new head is announced."""
    token = elected(store)
    store.part(Promotion).promote(JOURNAL_ID, token, [row(1), row(2, "p"), row(3, due_ms=FUTURE_MS - 1), row(4, "p")])
    found = look(store)
    assert [message[0] for message in found[b"waiting in q"]] == ["i3", "i1"]
    assert [message[0] for message in found[b"waiting in p"]] == ["i2", "i4"]
    assert sorted(ear.heard()) == sorted([announced(store, FUTURE_MS - 1), announced(store, FUTURE_MS, "p")])


def test_calls_of_the_script_are_bounded(store: DelayStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many rows, and rows of many bytes, go in several calls; none is left out."""
    monkeypatch.setattr(promotion, "PROMOTE_COUNT", 3)
    monkeypatch.setattr(promotion, "PROMOTE_BYTES", 25)
    token = elected(store)
    store.part(Promotion).promote(JOURNAL_ID, token, [row(11)])  # Redis knows the script from now on
    store.client.config_resetstat()
    words = store.part(Promotion).promote(JOURNAL_ID, token, several_rows(10)).words
    assert list(words.values()) == ["promoted"] * 10
    stats = store.client.info("commandstats")
    calls = sum(stats[f"cmdstat_{each}"]["calls"] for each in ("eval", "evalsha") if f"cmdstat_{each}" in stats)
    assert calls == 4


@pytest.mark.parametrize(
    ("id_", "later", "word"), [(JOURNAL_ID, -1, "superseded"), (JOURNAL_ID, 1, "behind"), ("another", 0, "other")]
)
def test_who_is_not_in_office_promotes_nothing(store: DelayStore, id_: str, later: int, word: str) -> None:
    """A promoter of an earlier token, in a Redis that was set back, or of another journal, changes nothing."""
    token = elected(store)
    store.client.sadd("{delayq}:queues", "q")
    before = contents(store.client)
    assert store.part(Promotion).promote(id_, token + later, several_rows(3)) == PromotedRows(word, {})
    assert contents(store.client) == before


def test_a_redis_that_lost_its_data_takes_nothing(store: DelayStore) -> None:
    """Without a marker no row comes into the store: first the loss has to be noticed."""
    token = elected(store)
    store.client.flushall()
    assert store.part(Promotion).promote(JOURNAL_ID, token, [row(1)]).word == "lost"
    assert store.queues.size("q") == 0


def test_keys_of_a_queue_that_expires_outlive_its_rows(store: DelayStore) -> None:
    """With x-expires the keys live until the row is due and for that time more."""
    due_ms = store.now_ms() + 1_000_000
    store.part(Promotion).promote(JOURNAL_ID, elected(store), [row(1, due_ms=due_ms)._replace(expire_ms=500_000)])
    assert 1_490_000 < store.client.pttl(LAYOUT_OF[store.layout].keys(store.keys, "q")[0]) <= 1_500_001
