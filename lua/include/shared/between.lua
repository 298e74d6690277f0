-- Returns between which ranks of a ZSET the messages are that are due from `from` on and before `to`: the rank of the
-- first, and the one behind the last. from: ms since the epoch, or -inf; to: the same, or +inf. Cost O(log N).
local function between(key, from, to)
  local first = from == '-inf' and 0 or redis.call('ZCOUNT', key, '-inf', '(' .. from)
  return first, redis.call('ZCOUNT', key, '-inf', '(' .. to)
end
