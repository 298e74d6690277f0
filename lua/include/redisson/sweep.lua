-- Keeps the list short. Redisson removes every entry that leaves by LREM, which goes through the whole list. Here an
-- entry that leaves the ZSET stays in the list at first, as garbage, which nobody delivers. Where there is much
-- garbage, a sweep takes entries from the head of the list, and puts those that still wait on its tail.
-- @include entry index_watermark large

-- The list may have this much garbage: GARBAGE entries, and SHARE of the number of waiting entries.
local SHARE = 0.3
local GARBAGE = 500

-- How many entries are read at once, at first and then at most.
local AT_FIRST, AT_ONCE = 8, 64

-- Removes garbage. Looks at `budget` entries at most, and at about `bytes` of them. Cost O(budget).
local function sweep(keys, budget, bytes)
  local live = redis.call('ZCARD', keys.due)
  local excess = redis.call('LLEN', keys.bodies) - live - (live * SHARE + GARBAGE)
  if excess <= 0 then
    return
  end
  local was_indexed, is_large = is_all_indexed(keys), has_large(keys)
  local at_once = is_large and 1 or AT_FIRST
  while excess > 0 and budget > 0 and bytes > 0 do
    local entries = redis.call('LRANGE', keys.bodies, 0, math.min(budget, at_once) - 1)
    local waiting = {}
    for i, due_ms in ipairs(redis.call('ZMSCORE', keys.due, unpack(entries))) do
      bytes = bytes - #entries[i]
      if due_ms then
        waiting[#waiting + 1] = entries[i]
      end
    end
    if not was_indexed then
      lose_watermarks(keys, entries)
    end
    redis.call('LTRIM', keys.bodies, #entries, -1)
    if #waiting > 0 then
      redis.call('RPUSH', keys.bodies, unpack(waiting))
      added.tail = added.tail and mark_of(waiting[#waiting])
    end
    budget, excess = budget - #entries, excess - (#entries - #waiting)
    at_once = is_large and 1 or math.min(2 * at_once, AT_ONCE)
  end
  if was_indexed then
    note_all_indexed(keys)
  end
end
