-- @include checked_sub_queues clock key_turn sub_queue

-- Gives up a place, see `places_in`. is_wrong: by the base of a queue's keys, whether one is somebody else's.
-- Cost O(log N).
local function give_up(places, now, is_wrong, tag, message)
  local base, step, name = string.match(redis.call('HGET', places, tag) or '', '^(.-)%z(%d)(.*)$')
  if not base then
    return false
  end
  if is_wrong[base] == nil then
    is_wrong[base] = wrong_sub(places, base) and true or false
  end
  if is_wrong[base] then -- `refresh_keys` counts again, once it is put right
    redis.call('HDEL', places, tag)
    return not message
  end
  local sub = sub_queues(base, now)
  local key = key_in(sub, name)
  local was_full = key.running >= key.bound
  redis.call('HDEL', places, tag)
  key.running = math.max(0, key.running - 1)
  if message then
    local from, number = '[' .. name .. '\0' .. step, sub.number
    local first = redis.call('ZRANGEBYLEX', base .. ':parked', from, '(' .. name .. '\1', 'LIMIT', 0, 1)[1]
    if first and string.sub(first, #name + 2, #name + 2) == step then
      number = tonumber(string.sub(first, #name + 3, #name + 18)) - 1
    end
    redis.call('ZADD', base .. ':parked', 0, name .. '\0' .. step .. string.format('%016.0f', number) .. message)
    key.waiting = key.waiting + 1
  end
  if (message or was_full) and enter(sub, name) then
    wake_idle(sub)
  end
  write_back(sub)
  return true
end

-- Returns a function that gives up the place of a delivery tag, and returns whether it had one; nil while no tag has
-- any. With a message, that is the next one of its key; false where it cannot be. Cost O(log N) a tag.
local function places_in(places)
  if redis.call('EXISTS', places) == 0 then
    return nil
  end
  local now, is_wrong = now_ms(), {}
  return function(tag, message)
    return give_up(places, now, is_wrong, tag, message)
  end
end

-- Gives up the places of all tags of a consumer. Cost O(places).
local function leave_places(places, consumer)
  local end_place = places_in(places)
  local taken = end_place and redis.call('HGETALL', places) or {}
  for place = 1, #taken, 2 do
    local tag = taken[place]
    if string.sub(tag, 1, #consumer + 1) == consumer .. '.' then
      end_place(tag)
    end
  end
end
