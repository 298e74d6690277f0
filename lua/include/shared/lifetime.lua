-- The keys of a queue with x-expires live until the latest message in them is due, and x-expires longer. No operation
-- lets these keys, or a list, end sooner. An operation that does not know x-expires derives it: it is the time from the
-- latest due time to the end of the keys.
-- Source: docs/design.md "Queues that expire".

-- A key that would live longer than this many ms has no end; Redis counts in 64 bits.
local ENDLESS = 9007199254740992

-- Returns the ms from now until the latest message is due, 0 if that is past. Cost O(log N).
local function ahead(keys, now)
  local latest = redis.call('ZRANGE', keys.due, -1, -1, 'WITHSCORES')[2]
  return math.max(tonumber(latest or now) - now, 0)
end

-- Returns the life of a queue before an operation: `left`, the PTTL of its keys; `margin`, for how many ms they live on
-- after the latest message is due, 0 where they have no TTL. expire: x-expires in ms, 0 where it is unknown.
-- Cost O(1), O(log N) where x-expires is unknown.
local function life_of(keys, now, expire)
  local left = redis.pcall('PTTL', keys.due)
  if type(left) == 'table' then -- the user's ACL forbids PTTL; the ACL of a Spark job may
    left = -1
  end
  local margin = expire
  if expire == 0 and left > 0 then
    local behind = math.floor(left - ahead(keys, now))
    margin = behind > 0 and behind or left -- somebody else's EXPIRE lets them end before their messages are due
  end
  return { left = left, margin = margin }
end

-- Returns the longer one of the lives of two queues' keys.
local function longer(one, two)
  if one.left == -1 or two.left == -1 then
    return { left = -1, margin = 0 }
  end
  return { left = math.max(one.left, two.left), margin = math.max(one.margin, two.margin) }
end

-- Removes the TTLs of all keys of a queue, also of keys that earlier messages have left behind.
local function persist(keys)
  for _, key in pairs(keys) do
    if redis.call('PTTL', key) > 0 then
      redis.pcall('PERSIST', key) -- where the ACL forbids it, the key keeps its TTL
    end
  end
end

-- Gives a key a TTL of at least `ms`. left: the PTTL of the key. Cost O(1).
local function lengthen(key, ms, left)
  if left < ms then
    redis.call('PEXPIRE', key, string.format('%.0f', ms))
  end
end

-- Gives all keys of a queue TTLs of at least `ms`. Does nothing if that is 0 or less. Cost O(1).
local function lengthen_all(keys, ms)
  for _, key in pairs(ms > 0 and keys or {}) do
    lengthen(key, ms, redis.call('PTTL', key))
  end
end

-- Lengthens the TTLs of a queue's keys after an operation. life: the reply of `life_of` before the operation.
-- Cost O(1), O(log N) where the keys have a TTL.
local function live_on(keys, life, now)
  if life.left == -1 and life.margin == 0 then
    return
  end
  local ms = life.margin > 0 and math.max(life.left, math.ceil(ahead(keys, now) + life.margin)) or math.huge
  if ms > ENDLESS then
    persist(keys)
  else
    lengthen_all(keys, ms)
  end
end
