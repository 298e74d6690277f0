-- @include again key_limit key_turn checked_sub_queues sort sub_queue take_turn

-- Returns what decides which messages a fetch gets: a table with the functions `take` and `settle`; nil where nothing
-- is limited, or an error. Fields of `to`: now, consumer ('' for one that takes no places), channel, free (how many
-- messages of keys with a bound or a rate it may take), bases (of the queues, those of in-flight lists first), routings
-- (false for a paused queue), flights, queues and lists as of `fetch`.
local function gate_of(places, to)
  local limits = places .. ':limits'
  if redis.call('EXISTS', limits) == 0 then
    return nil
  end
  local subs, wrong = sub_queues_of(places, to)
  if wrong then
    return wrong
  end
  local lists, step_of = lists_by_base(to)
  local by = { free = to.free, taken = {}, limit = limits_by_key(limits) }
  local function sort_all(sub)
    end_rests(sub)
    sub.failed = sort(sub, by.limit, lists[sub.base])
  end
  for _, sub in pairs(subs) do
    if sub.is_on then
      redis.call('HDEL', places, '') -- a full Redis refuses a script whose first write needs memory
      sort_all(sub)
    end
  end

  local function take(number, list, tag)
    local sub = subs[to.bases[number]]
    if sub.is_on then
      return number > to.flights and (take_turn(sub, by, step_of[list], tag) or sub.failed) or nil
    end
    local message = redis.pcall('RPOP', list)
    if type(message) ~= 'string' or not string.find(message, HEADER, 1, true) then
      return message
    end
    local name = name_of(message)
    sub.is_on = true
    park(sub, { { name = name, step = step_of[list], body = message } })
    sort_all(sub)
    enter(sub, name)
    return take(number, list, tag)
  end

  return {
    -- Returns the next message of a list; nil for none, or an error. tag: under which it is noted; nil for under none.
    take = function(number, list, tag)
      local message = take(number, list, tag)
      by.free = by.free - (type(message) == 'string' and 1 or 0)
      return message
    end,
    -- Writes what has changed. Returns in how many ms the consumer asks again, as a text; '' for as soon as one of its
    -- processes is free, nil for not before it is woken.
    settle = function(may_take)
      local again
      by.is_short = by.is_short or may_take and by.free <= 0
      if #by.taken > 0 then
        redis.call('HSET', places, unpack(by.taken))
      end
      for _, sub in pairs(subs) do
        if sub.is_on then
          if #sub.taken > 0 then
            redis.call('ZREM', sub.base .. ':parked', unpack(sub.taken))
          end
          again = math.min(again or math.huge, again_in(sub, to, may_take and not by.is_short) or math.huge)
          write_back(sub)
        end
      end
      if again and again < math.huge then
        return string.format('%.0f', math.max(0, again))
      end
      return again and by.is_short and '' or nil
    end,
  }
end
