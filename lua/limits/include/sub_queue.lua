-- Limits by key. A message with the header delayq_limit has a key, NAME or NAME:VALUE; the name is that of a limit.
-- Fetching sorts the messages of a queue's lists into sub-queues by key, and takes them from there in turns.
-- Keys of all queues of a slot group, both HASH:
--   places          delivery tag -> base of the queue's keys, priority step, key: a place that is taken
--   places:limits   name -> JSON of the limit; with '=' before a name or key, what people have set instead; '' -> 1
-- Keys of each queue, behind its base:
--   :parked  ZSET  key, NUL, priority step, 16 digits, message: what waits in sub-queues, all with the score 0
--   :turns   ZSET  key -> priority step * STEP + virtual time: the keys of which a message may go now
--   :known   HASH  key -> waiting, running, bound of running, virtual time, when its tokens are full (ms); and META
--   :rests   ZSET  key -> until when it rests, ms since the epoch
--   :idle    SET   channels of consumers that would take a message
-- META -> virtual time of the latest turn, latest number of 16 digits, messages that may go now, when the last consumer
-- that waits for the end of a rest asks again (ms)

local META = '\0'
local STEP = 1e11
local NONE = 'inf'

local function text_of(number)
  return number == math.huge and NONE or string.format('%.17g', number)
end

-- Returns the sub-queues of a queue. base: of its keys. Cost O(1).
local function sub_queues(base, now)
  local meta = redis.call('HGET', base .. ':known', META)
  local turn, number, may, asked = string.match(meta or '0 0 0 0', '(%S+) (%S+) (%S+) (%S+)')
  return {
    base = base, now = now, is_on = meta and true, turn = tonumber(turn), number = tonumber(number),
    may = tonumber(may), asked = tonumber(asked), keys = {}, taken = {},
  }
end

-- Returns how many messages of a key may go now.
local function that_may(key)
  return key.rests and 0 or math.max(0, math.min(key.waiting, key.bound - key.running))
end

-- Returns what is known of a key; the caller changes it. has_turn: whether it is among the turns. Cost O(1).
local function key_in(sub, name, has_turn)
  local key = sub.keys[name]
  if not key then
    local known = redis.call('HGET', sub.base .. ':known', name)
    local waiting, running, bound, time, full = string.match(known or '0 0 inf 0 0', '(%S+) (%S+) (%S+) (%S+) (%S+)')
    key = {
      waiting = tonumber(waiting), running = tonumber(running), bound = bound == NONE and math.huge or tonumber(bound),
      time = tonumber(time), full = tonumber(full),
      rests = not has_turn and redis.call('ZSCORE', sub.base .. ':rests', name),
    }
    key.may = that_may(key)
    sub.keys[name] = key
  end
  return key
end

-- Writes what has changed. Cost O(keys that were asked for).
local function write_back(sub)
  local known, gone = {}, {}
  for name, key in pairs(sub.keys) do
    sub.may = sub.may + that_may(key) - key.may
    key.may = that_may(key)
    if key.waiting > 0 or key.running > 0 or key.rests or key.full > sub.now then
      known[#known + 1] = name
      known[#known + 1] = table.concat({
        text_of(key.waiting), text_of(key.running), text_of(key.bound), text_of(key.time), text_of(key.full),
      }, ' ')
    else
      gone[#gone + 1] = name
    end
  end
  known[#known + 1] = META
  known[#known + 1] =
    table.concat({ text_of(sub.turn), text_of(sub.number), text_of(sub.may), text_of(sub.asked) }, ' ')
  for first = 1, #known, 4000 do
    redis.call('HSET', sub.base .. ':known', unpack(known, first, math.min(first + 3999, #known)))
  end
  for first = 1, #gone, 4000 do
    redis.call('HDEL', sub.base .. ':known', unpack(gone, first, math.min(first + 3999, #gone)))
  end
end
