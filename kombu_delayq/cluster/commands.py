"""What a cluster has to know of a command: in which hash slot its first key is, and how a script names one key alone.

While a slot moves, its old node answers ``ASK`` when it has none of the keys that a command names, before Redis 7.0
also when it lacks one of them. Each script names a key that there never is (``SlotKeys.guards``), so it runs none.
When it has no key of the slot any more, the new node has those that exist, and makes those that do not. But it runs no
command that names several keys of which one is missing. So the script gets its other keys as arguments. This module
knows no connection.
"""

from functools import lru_cache
from typing import Any

from kombu_delayq.cluster.slots import slot_of_key
from kombu_delayq.redis import Command, scripts
from kombu_delayq.text import as_text

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

#: Commands whose arguments are all keys, each of which counts by itself.
_OF_KEYS = frozenset(["EXISTS", "UNLINK", "DEL"])

#: Questions that any node answers: if one is silent, another one is asked.
OF_ANY = frozenset(["INFO", "TIME"])
#: Commands that run on every primary.
ON_ALL = frozenset(["FLUSHALL", "FLUSHDB", "SCRIPT LOAD", "SCRIPT FLUSH"])

#: Gives a script its keys and arguments as ever. Commands of several keys become several commands.
_BEFORE = """
local KEYS, ARGV = (function(first, given)
  local keys, args, count = { first }, {}, tonumber(given[1])
  for i = 2, #given do
    table.insert(i <= count + 1 and keys or args, given[i])
  end
  return keys, args
end)(KEYS[1], ARGV)
local redis = (function(whole)
  local function one_by_one(run)
    return function(command, ...)
      local given = { ... }
      if command == 'LMOVE' then
        local item = run(given[3] == 'LEFT' and 'LPOP' or 'RPOP', given[1])
        if item and not item.err then
          local done = run(given[4] == 'LEFT' and 'LPUSH' or 'RPUSH', given[2], item)
          return type(done) == 'table' and done or item
        end
        return item
      elseif #given < 2 or command ~= 'EXISTS' and command ~= 'UNLINK' and command ~= 'DEL' then
        return run(command, ...)
      end
      local sum = 0
      for _, key in ipairs(given) do
        local done = run(command, key)
        if type(done) == 'table' then
          return done
        end
        sum = sum + done
      end
      return sum
    end
  end
  return setmetatable({ call = one_by_one(whole.call), pcall = one_by_one(whole.pcall) }, { __index = whole })
end)(redis)
"""


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
    """Returns the place of the first key (0: none, -1: behind STREAMS), and whether a count of keys stands before."""
    first, _, second = str(name).upper().partition(" ")
    if first in _KEYLESS:
        return 0, False
    if first in _COUNTED:
        return _COUNTED[first] + 1, True
    if first in ("XREAD", "XREADGROUP"):
        return -1, False
    return (2 if first in _OF_TWO_WORDS and not second else 1), False


def with_one_key(command: Command) -> Command | None:
    """Returns a command that does the same and names its first key alone; None if there is none.

    There is one for scripts of ours, and for the commands that look for several keys or remove them.
    """
    if command[0] in _OF_KEYS and len(command) > 2:
        return with_one_key(
            ("EVAL", f"return redis.call('{command[0]}', unpack(KEYS))", len(command) - 1, *command[1:])
        )
    if command[0] not in ("EVAL", "EVALSHA") or int(command[2]) < 2:
        return None
    text = as_text(command[1]) if command[0] == "EVAL" else scripts.text_of(as_text(command[1]))
    if text is None:
        return None
    count = int(command[2])
    return ("EVAL", _BEFORE + text, 1, command[3], count - 1, *command[4 : 3 + count], *command[3 + count :])


def needs_all_keys(command: Command) -> bool:
    """Whether a command may use several keys, also such as it does not name, so that all have to be on one node."""
    return command[0] in ("EVAL", "EVALSHA") or (command[0] in _OF_KEYS and len(command) > 2)
