-- Whether duplicates of an id may wait, by the key `ids`; yes where Redis does not say. Cost O(log N).
local function may_have_duplicates(ids, id)
  local found = redis.pcall('ZRANGEBYLEX', ids, '[' .. id .. '~', '(' .. id .. '~g', 'LIMIT', 0, 1)
  return found.err or found[1]
end
