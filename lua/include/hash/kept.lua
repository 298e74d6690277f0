-- What the default backup keeps under which type.
local KEPT = { due = 'zset', backup = 'hash', order = 'string', twins = 'zset' }
