-- The token bucket of a queue: a message that is transferred takes a token. `rate` tokens a second come back, until
-- there are `burst`. Fields of the HASH bucket: full (when it is full again, ms since the epoch), rate, burst, and,
-- while due messages are held back, held (when the next may leave, ms since the epoch).
-- @include move

-- Where many tokens come back, messages leave together about every STEP_MS: a call for each of thousands a second would
-- keep Redis busy. The key is there for KEPT_MS after it was needed last.
local STEP_MS, KEPT_MS = 50, 60000

-- Returns the number of tokens. limit: rate and burst. Cost O(1).
local function tokens_in(bucket, limit, now)
  local full = tonumber(redis.call('HGET', bucket, 'full') or now) or now
  return math.max(0, math.min(limit.burst, limit.burst - (full - now) * limit.rate / 1000))
end

-- Returns when there are enough tokens for the next messages, ms since the epoch; now where they are there already.
local function next_step(limit, tokens, now)
  -- Half a burst at most: a bucket that is full loses tokens until the next call comes.
  local wanted = math.max(1, math.min(limit.burst / 2, limit.rate * STEP_MS / 1000))
  return now + math.max(0, wanted - tokens) * 1000 / limit.rate
end

-- Notes how many tokens are left. held: when the next messages may leave, or nil if none is held back. Cost O(1).
local function note_tokens(bucket, limit, now, tokens, held)
  local full = now + (limit.burst - tokens) * 1000 / limit.rate
  local fields = { 'full', string.format('%.17g', full), 'rate', limit.rate, 'burst', limit.burst }
  if held then
    fields[7], fields[8] = 'held', string.format('%.17g', held)
  else
    redis.call('HDEL', bucket, 'held')
  end
  redis.call('HSET', bucket, unpack(fields))
  redis.call('PEXPIRE', bucket, string.format('%.0f', math.max(full, held or now) - now + KEPT_MS))
end

-- Moves messages while there are tokens, the oldest first. to: as for `move_due`; limit: rate and burst; done: gets the
-- fields moved, lost and first. Returns when to go on, or nil if none is held back. Cost O(log N) a message.
local function move_limited(to, bucket, limit, now, count, bytes, done)
  local tokens, due = tokens_in(bucket, limit, now), redis.call('ZCOUNT', to.keys.due, '-inf', now)
  local was_held, may = redis.call('HGET', bucket, 'held'), math.min(count, math.floor(tokens + 0.001))
  done.moved, done.lost, done.first = move_due(to, now, may, bytes)
  local left = math.max(0, tokens - done.moved)
  local held = due > done.moved + done.lost and next_step(limit, left, now) or nil
  held = held and held > now and held or nil
  if done.moved > 0 or held or was_held then
    note_tokens(bucket, limit, now, left, held)
  end
  return held
end
