-- The urgent ones of the due messages of a queue that is held back: they go to a list that consumers empty before
-- another one. They leave first, the most urgent and of these the oldest. So an index of them is kept meanwhile. It is
-- filled in rounds through the due messages, a few in each call. A message that is cancelled, or gets another due time,
-- stays in it, so a call looks whether a message is still due.
-- ZSET urgent: due time (8 bytes) .. key of the message -> number of its list, from 0.
-- Fields of the HASH bucket: cursor, cursor_ms (message and due time up to which this round has looked), since (when it
-- had looked at all), cut (there where the index has left some out).
-- @include page pick zset

-- A call looks at so many messages, or about at so many bytes.
local LOOKED, LOOKED_BYTES = 500, 200000
-- The index has the INDEXED most urgent messages at most. A round begins ROUND_MS after the last had looked at all, for
-- messages that came late.
local INDEXED, ROUND_MS = 10000, 30000

-- Whether the oldest `count` messages are all of the most urgent kind: then they are the next ones.
-- step_of: function from a priority to the number of its list. Cost O(log N + count).
local function are_foremost(keys, count, step_of)
  local _, _, priorities = priorities_at(keys, 0, count, LOOKED_BYTES)
  for _, priority in ipairs(priorities) do
    if step_of(priority) > 0 then
      return false
    end
  end
  return true
end

-- Goes on with a round. last: number of the list that is emptied last, whose messages are not in the index.
-- Returns whether the round has looked at all messages that are due. Cost O(LOOKED * log N).
local function look_on(keys, bucket, urgent, now, step_of, last)
  local cursor, cursor_ms, since, cut = unpack(redis.call('HMGET', bucket, 'cursor', 'cursor_ms', 'since', 'cut'))
  if since and now - since > ROUND_MS or cut and redis.call('ZCARD', urgent) < INDEXED / 2 then
    redis.call('HDEL', bucket, 'cursor', 'cursor_ms', 'since', 'cut')
    cursor, since = false, false
  end
  local start = cursor and rank_after(keys.due, cursor, cursor_ms) or 0
  local stop = redis.call('ZCOUNT', keys.due, '-inf', now)
  local members, dues, priorities = priorities_at(keys, start, math.min(LOOKED, stop - start), LOOKED_BYTES)
  local found = {}
  for i, member in ipairs(members) do
    if step_of(priorities[i]) < last then
      found[#found + 1] = step_of(priorities[i])
      found[#found + 1] = struct.pack('>d', dues[i]) .. key_of(member)
    end
  end
  if #found > 0 then
    redis.call('ZADD', urgent, unpack(found))
    if redis.call('ZREMRANGEBYRANK', urgent, INDEXED, -1) > 0 then
      redis.call('HSET', bucket, 'cut', 1)
    end
  end
  if #members > 0 then
    redis.call('HSET', bucket, 'cursor', cursor_of(members[#members]), 'cursor_ms', dues[#dues])
  end
  local is_done = start + #members >= stop
  if is_done and not since then
    redis.call('HSET', bucket, 'since', string.format('%.17g', now))
  end
  return is_done
end

-- Takes the next messages out of the index, `count` at most. Returns members, due times, and whether more may be there.
-- Cost O(count * log N).
local function next_urgent(keys, urgent, now, count)
  local entries, members, dues = redis.call('ZRANGE', urgent, 0, count - 1), {}, {}
  for _, entry in ipairs(entries) do
    local due_ms = string.format('%.17g', (struct.unpack('>d', entry)))
    local member = due_member(keys, string.sub(entry, 9), due_ms, now)
    if member then
      members[#members + 1], dues[#dues + 1] = member, due_ms
    end
  end
  if #entries > 0 then
    redis.call('ZREM', urgent, unpack(entries))
  end
  return members, dues, #entries == count
end
