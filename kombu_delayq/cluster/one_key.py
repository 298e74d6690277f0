"""Scripts for a node that a slot is moving to: they name one key, because a node refuses several while one is missing.

While a slot moves, its old node answers ``ASK`` when it has none of a command's keys; before Redis 7.0 also when it
lacks one of them. If it has none, the new node has those that exist, and makes those that do not. But it runs no
command that names several keys of which one is missing, which is so for nearly all of our scripts: a queue without
messages has no list. So the script gets its other keys as arguments.
"""

import re

from kombu_delayq import scripts
from kombu_delayq.connection.text import Command, as_bytes, as_text

#: The only keys that a script uses and does not name: counters, which are arguments.
_COUNTERS = re.compile(rb".{0,999}delayq:\{.{1,999}\}:counts", re.DOTALL)

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


def with_one_key(command: Command) -> Command | None:
    """Returns a command that runs a script of ours and names its first key alone; None for any other command."""
    if command[0] not in ("EVAL", "EVALSHA") or int(command[2]) < 2:
        return None
    text = as_text(command[1]) if command[0] == "EVAL" else scripts.text_of(as_text(command[1]))
    if text is None:
        return None
    count = int(command[2])
    return ("EVAL", _BEFORE + text, 1, command[3], count - 1, *command[4 : 3 + count], *command[3 + count :])


def keys_of(command: Command) -> list[str | bytes]:
    """Returns the keys that a script names, of which ``with_one_key`` leaves the first."""
    return list(command[3 : 3 + int(command[2])])


def counters_of(command: Command) -> list[str | bytes]:
    """Returns the keys of counters among the arguments of a script; none for any other command.

    A script is sent to the new node only when the old node has none of them: ``ASK`` tells that only of the keys that a
    command names, and a key that was on both nodes would stop the move.
    """
    if command[0] not in ("EVAL", "EVALSHA"):
        return []
    given = [one for one in command[3 + int(command[2]) :] if isinstance(one, str | bytes) and len(one) < 2000]
    return [one for one in given if _COUNTERS.fullmatch(as_bytes(one))]
