-- Lets the keys of a queue expire when it is not used for `expire` ms; 0 is never.
local function expire_all(keys, expire)
  if expire > 0 then
    for _, key in pairs(keys) do
      redis.call('PEXPIRE', key, expire)
    end
  end
end
