-- Takes or renews a lease, such as that of the leading transfer worker, and names the queues to look after.
-- KEYS[1] lease   STRING  name of who holds it, with a TTL
-- KEYS[2] queues  SET     queues that hold or held delayed messages
-- ARGV[1] name    of who asks
-- ARGV[2] ttl     ms
-- Returns {name of the holder, {queue, queue, ...}}
-- Atomic: at any moment at most one holds the lease.
-- Cost: O(queues)
-- @include wrong_type

local lease, queues = KEYS[1], KEYS[2]
local name, ttl = ARGV[1], ARGV[2]

local wrong = wrong_type({ [lease] = 'string', [queues] = 'set' })
if wrong then
  return wrong
end
local leader = redis.call('GET', lease)
if not leader or leader == name then
  redis.call('SET', lease, name, 'PX', ttl)
  leader = name
end
return { leader, redis.call('SMEMBERS', queues) }
