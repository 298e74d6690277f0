-- The marker of a journal. Fields of the HASH journal: id (of the journal), term (number of the promoter in office; it
-- grows with each), epoch (how often this Redis has lost its data, from 1), beat (grows about every second, together
-- with one in the journal).

-- Returns nil while a term is in office, else why not: 'lost' (there is no marker), 'other' (this Redis belongs to
-- another journal), 'superseded' (a later term is in office), 'behind' (Redis was set back to before this term).
-- Cost O(1).
local function out_of_office(journal, id, term)
  local of, latest = unpack(redis.call('HMGET', journal, 'id', 'term'))
  if not of then
    return 'lost'
  elseif of ~= id then
    return 'other'
  elseif tonumber(latest) ~= tonumber(term) then
    return tonumber(latest) > tonumber(term) and 'superseded' or 'behind'
  end
  return nil
end

-- Returns the number of a new term, higher than that of each before, also of those that a lost Redis has forgotten.
local function new_term(latest, now)
  return string.format('%.0f', math.max((tonumber(latest) or 0) + 1, math.floor(now)))
end
