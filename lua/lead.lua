-- Takes or renews a lease, such as that of the leading transfer worker, and returns the names of all queues.
-- KEYS queues     SET     queues that hold or held delayed messages
-- KEYS leases...  STRING  name of its holder, with a TTL; the leader's lease first, then the standbys' in turn
-- ARGV name  name of the caller
-- ARGV ttl   of the lease, ms
-- Returns {holder of the first lease, number of the lease that the caller holds now or 0, {queue, queue, ...}}
-- Atomic: at any moment a lease has at most one holder, and nobody holds two leases.
-- Cost: O(queues)
-- @unchecked
-- @include wrong_type

-- Returns the value of a key, and, if Redis refuses the read, an error that names the key. The type is asked for only
-- after an error, because every worker calls this script all the time.
local function read(command, key, kept)
  local found = redis.pcall(command, key)
  local failed = type(found) == 'table' and found.err
  return found, failed and (wrong_type({ [key] = kept }) or found)
end

local known, failed = read('SMEMBERS', queues, 'set')
local holders, given = {}, 0
for i, lease in ipairs(leases) do
  local holder, wrong = read('GET', lease, 'string')
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
  if redis.call('PEXPIRE', leases[given], ttl) == 0 then
    redis.call('SET', leases[given], name, 'PX', ttl)
  end
  for i = given + 1, #holders do
    if holders[i] == name then
      redis.call('DEL', leases[i])
    end
  end
end
return { given == 1 and name or holders[1], given, known }
