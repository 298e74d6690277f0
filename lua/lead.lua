-- Takes or renews a lease, such as that of the leading transfer worker, and returns the names of all queues.
-- KEYS queues     SET     queues that hold or held delayed messages
-- KEYS leases...  STRING  name of its holder, with a TTL; the leader's lease first, then the standbys' in turn
-- ARGV name  name of the caller
-- ARGV ttl   of the lease, ms
-- Returns {holder of the first lease, number of the lease that the caller holds now or 0, {queue, queue, ...}}
-- Atomic: at any moment a lease has at most one holder, and nobody holds two leases.
-- Cost: O(queues)
-- @unchecked
-- @include lease

return take_lease(queues, leases, name, ttl)
