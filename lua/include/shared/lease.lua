-- @include wrong_type

-- Returns the value of a key, and, if Redis refuses the read, an error that names the key. The type is asked for only
-- after an error, because every worker does this all the time.
local function lease_read(command, key, kept)
  local found = redis.pcall(command, key)
  local failed = type(found) == 'table' and found.err
  return found, failed and (wrong_type({ [key] = kept }) or found)
end

-- Takes or renews the first lease that is free or the caller's. leases: STRING keys with a TTL, the leader's first,
-- then the standbys' in turn. ttl: of the lease, ms.
-- Returns {holder of the first lease, number of the lease that the caller holds now or 0, {queue, queue, ...}}, or an
-- error reply with nothing changed. Cost O(queues).
local function take_lease(queues, leases, name, ttl)
  local known, failed = lease_read('SMEMBERS', queues, 'set')
  local holders, given = {}, 0
  for i, lease in ipairs(leases) do
    local holder, wrong = lease_read('GET', lease, 'string')
    failed = failed or wrong
    if given == 0 and (not holder or holder == name) then
      given = i
    end
    holders[i] = holder
  end
  if failed then
    return failed
  end
  if given > 0 then
    -- Needs no memory, so that a full Redis lets the later writes of the script pass.
    local lease = leases[given]
    if redis.call('PEXPIRE', lease, ttl) == 0 then
      redis.call('SET', lease, name, 'PX', ttl)
    end
    for i = given + 1, #holders do
      if holders[i] == name then
        redis.call('DEL', leases[i])
      end
    end
  end
  return { given == 1 and name or holders[1], given, known }
end
