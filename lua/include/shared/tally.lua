-- Counters of what has happened to the messages of a queue. Their key, a HASH, is an argument and none of KEYS: Redis
-- refuses a whole script if its user has no right for one of KEYS. Nothing else that keeps Redis from counting ends an
-- operation either: it writes before it counts, so that a full Redis lets it count, and it ignores errors.

-- Adds to counters. by: field -> number. Cost O(fields).
local function tally(counts, by)
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
local function tally_operation(counts, name, number, due, before)
  if number == 0 then
    return
  end
  tally(counts, { [name] = number })
  local ends = redis.pcall('PTTL', due)
  ends = ends == -2 and before or ends
  if type(ends) == 'number' and ends > 0 then
    keep_counts(counts, ends)
  end
end

-- Removes the counters of a queue that is forgotten. One that is forgotten at once may be used again: its counters are
-- kept for `kept` ms, with 0 for good.
local function forget_counts(counts, at_once, kept)
  if not at_once then
    redis.pcall('UNLINK', counts)
  elseif kept > 0 then
    redis.pcall('PEXPIRE', counts, kept)
  end
end

-- Lets counters with a TTL go on, of a queue that is in use: for good if the key `due` has no TTL, and for at least
-- `kept` ms while that key is missing. Where it has a TTL, others see to the counters. Cost O(1).
local function renew_counts(counts, due, kept)
  local ends = redis.call('PTTL', due)
  if ends == -1 then
    keep_counts(counts, 0)
  elseif ends == -2 and redis.pcall('PTTL', counts) ~= -1 then
    keep_counts(counts, kept)
  end
end

-- Adds to the counters of a queue that nobody may know, and that nobody forgets then: counters that are new, or have a
-- TTL, get one of `kept` ms. kept: 0 for no end. Cost O(fields).
local function tally_for(counts, by, kept)
  local left = redis.pcall('PTTL', counts)
  tally(counts, by)
  if kept > 0 and type(left) == 'number' and left ~= -1 then
    keep_counts(counts, kept)
  end
end
