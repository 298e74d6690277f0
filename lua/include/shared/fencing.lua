-- The marker of a journal. Fields of the HASH journal: id (of the journal), token (fencing token of the promoter that
-- leads; it grows with each), epoch (how often this Redis has lost its data, from 1), heartbeat (grows about every
-- second, together with one in the journal), guard (id of the numbers that the rows have in the guard), server (that
-- whose data were compared with the journal, or on which the marker was written), redis (id of the data beside it: the
-- token with which the marker was written anew).

-- Returns nil while a promoter leads, else why not: 'lost' (there is no marker), 'other' (this Redis belongs to
-- another journal), 'superseded' (a later promoter leads), 'behind' (Redis was set back to before this leader).
-- Cost O(1).
local function fenced_off(journal, id, token)
  local of, latest = unpack(redis.call('HMGET', journal, 'id', 'token'))
  if not of then
    return 'lost'
  elseif of ~= id then
    return 'other'
  elseif tonumber(latest) ~= tonumber(token) then
    return tonumber(latest) > tonumber(token) and 'superseded' or 'behind'
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
-- token or an epoch begins in the same step, so nobody who relies on what the guard had leads any more.
-- Cost O(1), or O(rows in the guard).
local function own_guard(journal, journal_guard, guard)
  if (redis.call('HGET', journal, 'guard') or '') ~= guard then
    redis.call('DEL', journal_guard)
    redis.call('HSET', journal, 'guard', guard)
  end
end
