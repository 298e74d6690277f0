"""Redisson's layout, as Redisson itself works on it, and what must hold of it at any moment."""

import json
import struct

from kombu_delayq.store import DelayStore
from kombu_delayq.store.client import StoreClient
from kombu_delayq.store.layouts import LAYOUT_OF
from kombu_delayq.store.lookup import MAX_BYTES
from kombu_delayq.store.redisson_layout import RedissonKeys, index
from tests.support.store.keyspace import FUTURE_MS

#: Keys of the queue "q": Redisson's index and list, and our notes and index of ids.
TIMEOUT, LISTED, NOTES, IDS = (
    *("redisson_delay_queue_timeout:{q}", "redisson_delay_queue:{q}"),
    *("delayq:{q}:notes", "delayq:{q}:ids"),
)
#: The script of Redisson's own transfer.
TRANSFER = """
local expired = redis.call('zrangebyscore', KEYS[2], 0, ARGV[1], 'limit', 0, ARGV[2])
if #expired > 0 then
  for _, entry in ipairs(expired) do
    local _, message = struct.unpack(ARGV[3], entry)
    redis.call('rpush', KEYS[1], message)
    redis.call('lrem', KEYS[3], 1, entry)
  end
  redis.call('zrem', KEYS[2], unpack(expired))
end
return #expired
"""
MARK, RECORD = 9, 17


def live(store: DelayStore, queue: str = "q") -> dict[bytes, float]:
    """Returns the entries that wait, each with its due time."""
    return dict(store.client.zrange(RedissonKeys(store.keys).timeout(queue), 0, -1, withscores=True))


def listed(store: DelayStore, queue: str = "q") -> list[bytes]:
    """Returns the entries of the list, with those of messages that no longer wait."""
    return list(store.client.lrange(RedissonKeys(store.keys).listed(queue), 0, -1))


def body_in(entry: bytes) -> bytes:
    """Returns the message in an entry. Its first byte says how the entry is packed."""
    at = 1 + entry[0] if entry[0] in (7, 8) else 8
    [length] = struct.unpack_from("<Q", entry, at)
    assert length == len(entry) - at - 8
    return entry[at + 8 :]


def records(store: DelayStore, queue: str = "q") -> dict[bytes, list[bytes]]:
    """Returns the marks in the index of ids, each with its due times there."""
    found: dict[bytes, list[bytes]] = {}
    for field, value in store.client.hgetall(RedissonKeys(store.keys).ids(queue)).items():
        if not field.startswith(b"\0n"):
            for at in range(0, len(value), RECORD):
                found.setdefault(value[at + 8 : at + RECORD], []).append(value[at : at + 8])
    return found


def is_tail_known(store: DelayStore, queue: str = "q") -> bool:
    """Whether our notes say that all entries of the list are in the index of ids."""
    tail = store.client.lindex(RedissonKeys(store.keys).listed(queue), -1)
    return tail is None or tail[:MARK] == store.client.hget(RedissonKeys(store.keys).notes(queue), "tail")


def is_sound(store: DelayStore, queue: str = "q", removed: int = 0) -> None:
    """Checks what must hold of a queue after any operation of ours and of others.

    Args:
        store: A store in this layout.
        queue: Name of the queue.
        removed: Number of messages that others may have removed since our last operation.
    """
    waiting, entries, found = live(store, queue), listed(store, queue), records(store, queue)
    if not waiting:
        assert not store.client.exists(*LAYOUT_OF["redisson"].keys(store.keys, queue))
        return
    assert set(waiting) <= set(entries)
    assert len(set(entries)) == len(entries) <= 1.5 * len(waiting) + 1000
    assert all(due_ms == int(due_ms) for due_ms in waiting.values())
    is_known = is_tail_known(store, queue)
    for entry, due_ms in waiting.items():
        assert found.get(entry[:MARK], []).count(struct.pack("<d", due_ms)) == 1 or not (is_known or entry[0] == 7)
    assert store.client.hlen(RedissonKeys(store.keys).ids(queue)) <= 2.5 * len(waiting) + 7 * removed + 1100


def task(identity: str) -> bytes:
    """Makes a message as another client may write it."""
    return json.dumps({"headers": {"task": "t", "id": identity}, "properties": {}}).encode()


def entry(number: int, message: bytes, *, old: bool = False) -> bytes:
    """Makes an entry as Redisson does: with a double (old), or with 8 bytes and their number before them."""
    length = struct.pack("<Q", len(message))
    return (struct.pack("<d", number) if old else b"\x08" + struct.pack("<q", number)) + length + message


def offer(store: DelayStore, number: int, message: bytes, due_ms: float = FUTURE_MS, *, old: bool = False) -> None:
    """Offers a message as Redisson does."""
    made = entry(number, message, old=old)
    store.client.zadd(RedissonKeys(store.keys).timeout("q"), {made: due_ms})
    store.client.rpush(RedissonKeys(store.keys).listed("q"), made)


def index_page(store: DelayStore, last: bytes, last_due: bytes, tail: bytes) -> list[bytes]:
    """Makes up to 9 messages findable."""
    keys = LAYOUT_OF["redisson"].keys(store.keys, "q")
    call = index(keys=keys, last=last, last_due=last_due, tail=tail, count=9, max_bytes=MAX_BYTES)
    return StoreClient(store.client).run(call)
