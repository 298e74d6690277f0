"""What is left in Redis: which keys are there for good, and what every other one holds."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import redis

#: Keys that outlive the messages, and why. Those of the second group are there while the fleet runs.
PERMANENT = {
    r"_kombu\.binding(_permanent)?\..*": "a binding of kombu, for good",
    r"_kombu\.binding_deadlines": "when bindings of kombu end, for good",
    r"delayq:\{.*\}:order": "the count of marked messages of a queue, for good",
    r"delayq:\{.*\}:counts(:\d+)?": "what is counted of a queue, for good, and of each hour, with a TTL",
    r"\{delayq\}:queues": "names of the queues in which delayed messages wait, or have waited until a moment ago",
    r"\{delayq\}:consumed_queues": "names of the queues that consumers have consumed, in a cluster",
    r"\{delayq\}:chains": "ids of delay chains in use, bounded",
    r"delayq:(\{.*\}:)?sender:.*": "the last page of a send_many, with a TTL",
    r"\{delayq\}:(transfer|standby.*)": "a lease of a transfer worker, with a TTL",
    r"(delayq:\{.*\}|\{delayq\}):journal(:guard|:lease)?": "of which journal Redis is, and who promotes",
    r"(delayq:\{.*\}|\{delayq\}):periodic(:.*)?": "what is known of periodic entries, for good",
    r"(delayq:\{.*\}|\{delayq\}):places:(limits|known|idle)": "what is known of limits and keys, for good",
    r"\{delayq\}:dead_letters": "names of the queues that have had dead letters, for good",
    r"unacked_mutex": "the lock of stock's sweep, with a TTL",
}
WHILE_RUNNING = {r"(delayq:\{.*\}|\{delayq\}):consume(rs.*|d)": "leases of consumers"}
#: How many members of a key that must not stay are named.
SAMPLE = 20
#: Task ids as publishers make them.
_ID = re.compile(r"publisher-[a-z0-9-]+\.\d+\.\d+")


@dataclass(frozen=True)
class Left:
    """A key.

    Attributes:
        key: Its name.
        type: Its type.
        length: Number of its elements, or bytes of a string.
        why: Why it may stay; empty if it must not.
        sample: If it must not stay, the first of its members or fields.
    """

    key: str
    type: str
    length: int
    why: str
    sample: tuple[str, ...] = ()


def left(client: redis.Redis, *, running: bool) -> list[Left]:
    """Returns every key. ``running`` says whether consumers may have leases."""
    expected = {**PERMANENT, **(WHILE_RUNNING if running else {})}
    found = []
    for key in sorted(client.scan_iter(count=1000)):
        kind = str(client.type(key))
        if kind != "none":
            plain = key.replace("{_kombu.binding}", "_kombu.binding")  # where Redis has hash slots, they share one
            why = next((why for pattern, why in expected.items() if re.fullmatch(pattern, plain)), "")
            sample = () if why else tuple(_members(client, key, kind))[:SAMPLE]
            found.append(Left(key, kind, _length(client, key, kind), why, sample))
    return found


def waiting(client: redis.Redis) -> int:
    """Counts what is in keys that hold messages."""
    return sum(entry.length for entry in left(client, running=True) if not entry.why)


def leases(client: redis.Redis) -> list[str]:
    """Returns the keys with leases of consumers."""
    return list(client.scan_iter("*delayq*:consumers", count=1000))


def ids_in(client: redis.Redis, entries: list[Left]) -> dict[str, str]:
    """Returns the ids of tasks in keys that must not stay, each with its key."""
    found = {}
    for entry in entries:
        if not entry.why:
            for text in _contents(client, entry):
                for task_id in _ID.findall(text):
                    found[task_id] = entry.key
    return found


def _length(client: Any, key: str, kind: str) -> int:
    lengths = {"list": client.llen, "hash": client.hlen, "zset": client.zcard, "set": client.scard}
    return int(lengths.get(kind, client.strlen)(key))


def _members(client: Any, key: str, kind: str) -> Iterator[str]:
    """Yields what tells whose the members of a key are."""
    if kind == "hash":
        yield from client.hkeys(key)
    elif kind == "zset":
        yield from (f"{member} {score}" for member, score in client.zrange(key, 0, -1, withscores=True))


def _contents(client: Any, entry: Left) -> Iterator[str]:
    if entry.type == "list":
        yield from client.lrange(entry.key, 0, -1)
    elif entry.type == "hash":
        yield json.dumps(client.hgetall(entry.key))
    elif entry.type == "zset":
        yield from client.zrange(entry.key, 0, -1)
    elif entry.type == "set":
        yield from client.smembers(entry.key)
    else:
        yield str(client.get(entry.key))
