-- Whether a chain was cancelled and takes no step. Cost O(log N).
local function is_cancelled(cancelled, chains, id, now)
  if tonumber(redis.call('ZSCORE', cancelled, id) or 0) <= now then
    return false
  end
  redis.call('ZREM', chains, id) -- the chain has ended
  return true
end

-- Notes when the latest step of a chain is due. ttl: for how many ms after that it may run; most: how many past due
-- times are kept. Cost O(log N).
local function note_step(chains, id, due, now, ttl, most)
  -- 'GT' keeps the 'inf' of '' where a chain has an empty id. Up to two ids leave for one that comes, so that the
  -- number of ids falls.
  redis.call('ZADD', chains, 'GT', 'inf', '', due, id)
  local ended = redis.call('ZCOUNT', chains, '-inf', now - ttl)
  local spare = math.min(math.max(ended, redis.call('ZCOUNT', chains, '-inf', now) - most), 2)
  if spare > 0 then
    redis.call('ZREMRANGEBYRANK', chains, 0, spare - 1)
  end
end
