"""``heads.lua``: reads when each queue's next message is due."""

from kombu_delayq.store import DelayStore
from tests.support.store.cost import calls, round_trips
from tests.support.store.keyspace import FUTURE_MS, PAST_MS, by_queue, clock_ms, contents, in_form, kept_ms, waiting


def test_heads_are_the_earliest_of_each_queue(store: DelayStore) -> None:
    """Each queue's earliest due time is told exactly, and queues without delayed messages are left out."""
    store.delivery.offer("a", waiting("i", FUTURE_MS + 1), waiting("j", FUTURE_MS + 0.125), waiting("k", FUTURE_MS + 2))
    store.delivery.offer("b", waiting("i", PAST_MS))
    store.client.lpush("ready only", "message")
    before = contents(store.client)
    before_ms = clock_ms(store.client)
    heads = store.delivery.heads(["a", "none", "b", "ready only"])
    assert by_queue(heads) == {"a": kept_ms(store, FUTURE_MS + 0.125), "b": PAST_MS}
    assert before_ms <= heads.now_ms <= clock_ms(store.client)
    assert contents(store.client) == before


def test_no_queue_has_no_head(store: DelayStore) -> None:
    """Asked for no queue, Redis still tells its clock."""
    before_ms = clock_ms(store.client)
    heads = store.delivery.heads([])
    assert heads.due_ms == {}
    assert before_ms <= heads.now_ms <= clock_ms(store.client)


def test_a_key_of_the_wrong_type_counts_as_due(store: DelayStore) -> None:
    """One queue with somebody else's key in the way hides no other; it seems due, so that its transfer tells of it."""
    store.client.rpush(in_form(store, "delayq:{broken}:due"), "somebody else's")
    store.delivery.offer("q", waiting("i"))
    assert by_queue(store.delivery.heads(["broken", "q"])) == {"broken": 0.0, "q": FUTURE_MS}


def test_queues_without_delayed_messages_cost_one_command(store: DelayStore) -> None:
    """Of queues without a delayed message each costs one command, and a script for one of them reads the clock."""
    queues = [f"queue {number}" for number in range(50)]
    store.delivery.heads(queues)  # Redis has the script from here on
    store.client.config_resetstat()
    assert round_trips(store, lambda: store.delivery.heads(queues)) == 2
    commands = calls(store)
    assert (commands["exists"], commands["evalsha"]) == (49, 1)
