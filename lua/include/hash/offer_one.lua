-- @include has_duplicates large marks wake

-- Does what the script `offer` does, where it is given one message and nothing is out of the ordinary: the queue holds
-- others and has no end, the id is free, without duplicates and of no waiting key, and the message needs no mark. Most
-- calls are like that. The rest of the script takes Redis longer, even to define its functions. Returns the reply, or
-- nil with nothing changed.
-- Cost O(log N).
local function offer_one()
  local call, pcall = redis.call, redis.pcall
  local due, bodies, ids = KEYS[1], KEYS[2], KEYS[4]
  local expire, id, due_ms, priority, body = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
  local is_relative = string.sub(due_ms, 1, 1) == '+'
  if #ARGV > 7 or expire ~= '0' or is_relative or #body > LARGE or needs_mark(id, priority, body) then
    return nil
  elseif byte_of(id, -17) == 126 then -- see duplicates.lua
    return nil
  elseif pcall('PTTL', due) ~= -1 or pcall('ZCOUNT', due, due_ms, due_ms) ~= 0 then
    return nil
  elseif pcall('ZCARD', ids) ~= 0 and may_have_duplicates(ids, id) then
    return nil
  elseif pcall('HSETNX', bodies, id, body) ~= 1 then
    return nil -- the id is taken, or Redis refuses, for a reason that the rest of the script meets too
  end
  call('ZADD', due, due_ms, id)
  local head = call('ZRANGE', due, 0, 0, 'WITHSCORES')
  if head[1] ~= id then
    return { 'behind', 1, 0, 0 }
  end
  wake_up(ARGV[1], head[2], ARGV[2])
  return { 'head', 1, 0, 0 }
end
