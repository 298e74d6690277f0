"""``forget_idle.lua``: removes a key that nobody has used for long."""

from celery_ext.repair.store import Idle, RepairStore
from kombu_delayq.store import DelayStore
from tests.support.store.keyspace import idle_for

UNUSED = Idle("unused", "list", 0)


def forgets(store: DelayStore) -> bool:
    """Lets the script have the key. Returns whether it has removed it."""
    is_gone = bool(store.part(RepairStore).forget_idle([UNUSED], 3600))
    assert is_gone == (not store.client.exists(UNUSED.key))
    return is_gone


def test_what_nobody_uses_is_removed(store: DelayStore) -> None:
    """A key that nobody has used for as long as is given is removed, of whatever type it is."""
    store.client.lpush(UNUSED.key, "a")
    assert not forgets(store)
    idle_for(store.client, UNUSED.key, 3500)
    assert not forgets(store)
    idle_for(store.client, UNUSED.key, 3600)
    assert forgets(store)
    store.client.sadd(UNUSED.key, "a")
    idle_for(store.client, UNUSED.key, 3600)
    assert forgets(store)


def test_what_somebody_has_just_used_or_what_expires_stays(store: DelayStore) -> None:
    """A reply that arrives, a reader and a TTL each keep the key."""
    for use in (("LPUSH", UNUSED.key, "b"), ("LLEN", UNUSED.key), ("PEXPIRE", UNUSED.key, 60_000)):
        store.client.lpush(UNUSED.key, "a")
        idle_for(store.client, UNUSED.key, 5000)
        store.client.execute_command(*use)
        assert not forgets(store)
        store.client.persist(UNUSED.key)
