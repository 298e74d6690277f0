-- Takes or renews a lease, such as that of the leading transfer worker, and returns the names of all queues.
-- KEYS[1]    queues  SET     queues that hold or held delayed messages
-- KEYS[2...] lease   STRING  name of its holder, with a TTL; the leader's lease first, then the standbys' in turn
-- ARGV[1] name  name of the caller
-- ARGV[2] ttl   of the lease, ms
-- Returns {holder of the first lease, number of the lease that the caller holds now or 0, {queue, queue, ...}}
-- Atomic: at any moment a lease has at most one holder, and nobody holds two leases.
-- Cost: O(queues)
-- @unchecked
-- @include wrong_type

local name, ttl = ARGV[1], ARGV[2]

-- Returns the value of a key, and, if Redis refuses the read, an error that names the key. The type is asked for only
-- after an error, because every worker calls this script all the time.
local function read(command, key, kept)
  local found = redis.pcall(command, key)
  local failed = type(found) == 'table' and found.err
  return found, failed and (wrong_type({ [key] = kept }) or found)
end

local known, failed = read('SMEMBERS', queues, 'set')
local holders, given = {}, 0
for i = 2, #KEYS do
  local holder, wrong = read('GET', KEYS[i], 'string')
  failed = failed or wrong
  if given == 0 and (not holder or holder == name) then
    given = i - 1
  end
  holders[i - 1] = holder
end
if failed then
  return failed
end
if given > 0 then
  -- Needs no memory, so that a full Redis lets the later writes of the script pass.
  if redis.call('PEXPIRE', KEYS[given + 1], ttl) == 0 then
    redis.call('SET', KEYS[given + 1], name, 'PX', ttl)
  end
  for i = given + 1, #holders do
    if holders[i] == name then
      redis.call('DEL', KEYS[i + 1])
    end
  end
end
return { given == 1 and name or holders[1], given, known }
