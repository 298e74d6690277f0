-- @include sub_queue wrong_type

-- Returns an error if a key of a queue is of another type than it is here.
local function wrong_sub(places, base)
  return wrong_type({
    [places] = 'hash',
    [base .. ':parked'] = 'zset',
    [base .. ':turns'] = 'zset',
    [base .. ':known'] = 'hash',
    [base .. ':rests'] = 'zset',
    [base .. ':idle'] = 'set',
  })
end

-- Returns the sub-queues of the queues of a fetch, without those that are paused, by the base of their keys; or nil and
-- an error. Cost O(queues).
local function sub_queues_of(places, to)
  local subs, wrong = {}, wrong_type({ [places .. ':limits'] = 'hash' })
  for number, base in ipairs(to.bases) do
    if to.routings[number] and not subs[base] then
      wrong = wrong or wrong_sub(places, base)
      subs[base] = not wrong and sub_queues(base, to.now)
    end
  end
  return not wrong and subs, wrong
end
