-- The marker of a journal. Fields of the HASH journal: id (of the journal), term (number of the promoter in office; it
-- grows with each), epoch (how often this Redis has lost its data, from 1), beat (grows about every second, together
-- with one in the journal), guard (id of the numbers that the rows have in the guard), server (that whose data were
-- compared with the journal, or on which the marker was written).

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

-- Returns what is another one after a restart or a failover of the server, by which data may be lost; '' where an ACL
-- forbids the question. Cost O(1).
local function server_id()
  local found = {}
  for _, part in ipairs({ { 'server', 'run_id:(%x+)' }, { 'replication', 'master_replid:(%x+)' } }) do
    local info = redis.pcall('INFO', part[1])
    found[#found + 1] = type(info) == 'string' and string.match(info, part[2]) or nil
  end
  return table.concat(found, ' ')
end

-- Empties the guard if it has numbers of another journal, or of one that was set back and gives them to other rows. A
-- term or an epoch begins in the same step, so nobody who relies on what the guard had is in office any more.
-- Cost O(1), or O(rows in the guard).
local function own_guard(journal, journal_guard, guard)
  if (redis.call('HGET', journal, 'guard') or '') ~= guard then
    redis.call('DEL', journal_guard)
    redis.call('HSET', journal, 'guard', guard)
  end
end

-- Returns the number of a new term, higher than that of each before, also of those that a lost Redis has forgotten.
local function new_term(latest, now)
  return string.format('%.0f', math.max((tonumber(latest) or 0) + 1, math.floor(now)))
end
