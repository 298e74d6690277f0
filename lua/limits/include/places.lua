-- @include checked_sub_queues clock key_turn member sub_queue

-- Puts a message back as the next one of its key. Cost O(log N).
local function park_next(sub, name, step, message)
  local from, number = '[' .. name .. '\0' .. step, sub.number
  local first = redis.call('ZRANGEBYLEX', sub.base .. ':parked', from, '(' .. name .. '\1', 'LIMIT', 0, 1)[1]
  local of_first, digits = order_in(name, first or '')
  if of_first == step then
    number = tonumber(digits) - 1
  end
  redis.call('ZADD', sub.base .. ':parked', 0, parked_member(name, step, number, message))
  key_in(sub, name).waiting = key_in(sub, name).waiting + 1
end

-- Gives keys their turns that have become free, wakes a consumer for them, and writes what has changed.
local function let_enter(sub)
  local has_turn = false
  for name, key in pairs(sub.keys) do
    has_turn = key.enters and enter(sub, name) or has_turn
  end
  if has_turn then
    wake_idle(sub)
  end
  write_back(sub)
end

-- Returns two functions; nil while no tag has a place. The first gives up the place of a delivery tag, and returns
-- whether it had one; with a message, that is the next one of its key, and it returns false where it cannot be. The
-- second does what follows from that, and is called after all. Cost O(log N) a tag.
local function places_in(places)
  if redis.call('EXISTS', places) == 0 then
    return nil
  end
  local now, subs = now_ms(), {}
  return function(tag, message)
    local base, step, name = string.match(redis.call('HGET', places, tag) or '', '^(.-)%z(%d)(.*)$')
    if not base then
      return false
    end
    redis.call('HDEL', places, tag)
    subs[base] = subs[base] == nil and not wrong_sub(places, base) and sub_queues(base, now) or subs[base] or false
    local sub = subs[base]
    if not sub then
      return not message -- `refresh_keys` counts again, once it is put right
    end
    local key = key_in(sub, name)
    key.enters = key.enters or message or key.running >= key.bound
    key.running = math.max(0, key.running - 1)
    if message then
      park_next(sub, name, step, message)
    end
    return true
  end, function()
    for _, sub in pairs(subs) do
      if sub then
        let_enter(sub)
      end
    end
  end
end
