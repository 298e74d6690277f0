"""Finds the hash slot of a command: that of its first key. Knows no connection."""

from functools import lru_cache
from typing import Any

from kombu_delayq.connection.slots import slot_of_key

#: Commands without a key, by their first word.
_KEYLESS = frozenset(
    [
        *("ACL", "ASKING", "AUTH", "BGREWRITEAOF", "BGSAVE", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DBSIZE"),
        *("DEBUG", "DISCARD", "ECHO", "EXEC", "FAILOVER", "FLUSHALL", "FLUSHDB", "FUNCTION", "HELLO", "INFO", "KEYS"),
        *("LASTSAVE", "LATENCY", "MODULE", "MONITOR", "MULTI", "PING", "PSUBSCRIBE", "PUBLISH", "PUBSUB"),
        *("PUNSUBSCRIBE", "QUIT", "RANDOMKEY", "READONLY", "READWRITE", "RESET", "ROLE", "SAVE", "SCAN", "SCRIPT"),
        *("SELECT", "SHUTDOWN", "SLOWLOG", "SUBSCRIBE", "SWAPDB", "TIME", "UNSUBSCRIBE", "UNWATCH", "WAIT"),
    ]
)
#: Commands whose first argument names what to do, and whose second one is a key.
_OF_TWO_WORDS = frozenset(["MEMORY", "OBJECT", "XGROUP", "XINFO"])
#: Where the count of the keys stands; the first key follows it. No key if the count is 0.
_COUNTED = {
    **dict.fromkeys(["EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO", "BLMPOP", "BZMPOP"], 2),
    **dict.fromkeys(["LMPOP", "ZMPOP", "SINTERCARD", "ZDIFF", "ZINTER", "ZINTERCARD", "ZUNION"], 1),
}

#: Questions that any node answers: if one is silent, another one is asked.
OF_ANY = frozenset(["INFO", "TIME"])
#: Commands that run on every primary.
ON_ALL = frozenset(["FLUSHALL", "FLUSHDB", "SCRIPT LOAD", "SCRIPT FLUSH"])


def slot_of(command: tuple[Any, ...]) -> int | None:
    """Returns the hash slot of a command's first key; None for a command without a key, which any node can run.

    Args:
        command: Name and arguments. The name may have two words, as in redis-py's own methods.
    """
    at, is_counted = _place_of(command[0])
    if is_counted and not (len(command) > at and int(command[at - 1])):
        return None
    if at < 0:
        at = [str(word).upper() for word in command].index("STREAMS") + 1
    if not 0 < at < len(command):
        return None
    key = command[at]
    return slot_of_key(key if isinstance(key, (str, bytes)) else str(key))


@lru_cache
def _place_of(name: Any) -> tuple[int, bool]:
    """Returns where the first key of a command stands.

    Returns:
        Its place; 0 for none, and -1 for behind the word STREAMS. And whether the count of keys stands before it.
    """
    first, _, second = str(name).upper().partition(" ")
    if first in _KEYLESS:
        return 0, False
    if first in _COUNTED:
        return _COUNTED[first] + 1, True
    if first in ("XREAD", "XREADGROUP"):
        return -1, False
    return (2 if first in _OF_TWO_WORDS and not second else 1), False
