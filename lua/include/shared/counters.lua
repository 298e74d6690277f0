-- Counters of what has happened to the messages of a queue. Their key, a HASH, is an argument and none of KEYS: Redis
-- refuses a whole script if its user has no right for one of KEYS. Nothing else that keeps Redis from counting ends an
-- operation either: it writes before it counts, so that a full Redis lets it count, and it ignores errors.

-- For how many ms the counters of a queue are kept in which nothing waits: 7 days.
local COUNTS_KEPT = 604800000

-- Adds to counters. by: field -> number. Cost O(fields).
local function count_up(counts, by)
  for field, number in pairs(by) do
    if number ~= 0 then
      redis.pcall('HINCRBY', counts, field, number)
    end
  end
end

-- Gives counters a TTL of at least `ms`; with 0, no TTL. Cost O(1).
local function keep_counts(counts, ms)
  local left = redis.pcall('PTTL', counts)
  if type(left) == 'table' then
    return
  elseif ms == 0 and left > 0 then
    redis.pcall('PERSIST', counts)
  elseif ms > 0 and left < ms then
    redis.pcall('PEXPIRE', counts, string.format('%.0f', ms))
  end
end

-- Adds to the counter of an operation on a queue that may expire: the counters end no sooner than its keys.
-- before: the reply of PTTL for the key `due` before the operation, which may have removed the key. Cost O(1).
local function count_operation(counts, name, number, due, before)
  if number == 0 then
    return
  end
  count_up(counts, { [name] = number })
  local ends = redis.pcall('PTTL', due)
  ends = ends == -2 and before or ends
  if type(ends) == 'number' and ends > 0 then
    keep_counts(counts, ends)
  end
end

-- Adds to the counters of a queue that nobody may know: counters that are new, or have a TTL, are kept for a while.
-- Cost O(fields).
local function count_for_a_while(counts, by)
  local left = redis.pcall('PTTL', counts)
  count_up(counts, by)
  if type(left) == 'number' and left ~= -1 then
    keep_counts(counts, COUNTS_KEPT)
  end
end
