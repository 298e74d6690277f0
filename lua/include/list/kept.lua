-- What the backup in Redisson's form keeps under which type.
local KEPT = { due = 'zset', backup = 'list', order = 'hash', twins = 'hash' }
