-- What a transfer takes from the default backup.
-- @include backup

-- Reads up to `count` messages that are due, oldest first, and no more than about `bytes` of them. Returns as `read`.
-- Cost O(log N + count).
local function take(keys, now, count, bytes)
  return read(keys, redis.call('ZRANGEBYSCORE', keys.due, '-inf', now, 'WITHSCORES', 'LIMIT', 0, count), bytes)
end

-- Removes the messages that `take` has just returned, by their members: the first ones by due time.
-- Cost O(log N) a message.
local function drop(keys, members)
  local ids, twins = {}, {}
  for i, member in ipairs(members) do
    ids[i] = id_of(member)
    if may_be_twin(ids[i]) then
      twins[#twins + 1] = ids[i]
    end
  end
  redis.call('ZREMRANGEBYRANK', keys.due, 0, #members - 1)
  redis.call('HDEL', keys.backup, unpack(ids))
  if #twins > 0 then
    redis.call('ZREM', keys.twins, unpack(twins))
  end
end
