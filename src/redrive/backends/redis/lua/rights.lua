-- May this user run everything that scripts run? A right that is missing would end a script in its middle, half written.
-- KEYS: any key of a shard.
if redis.acl_check_cmd then -- since Redis 7
  for _, command in ipairs({
    { 'HSET', KEYS[1], 'a', 'b' },
    { 'HDEL', KEYS[1], 'a' },
    { 'HINCRBY', KEYS[1], 'a', '1' },
    { 'HMGET', KEYS[1], 'a' },
    { 'ZADD', KEYS[1], '0', 'a' },
    { 'ZREM', KEYS[1], 'a' },
    { 'ZCARD', KEYS[1] },
    { 'ZLEXCOUNT', KEYS[1], '-', '+' },
    { 'ZRANGE', KEYS[1], '0', '0' },
    { 'ZREVRANGE', KEYS[1], '0', '0' },
    { 'ZRANGEBYLEX', KEYS[1], '-', '+' },
    { 'ZREVRANGEBYLEX', KEYS[1], '+', '-' },
    { 'GET', KEYS[1] },
    { 'SET', KEYS[1], 'a' },
    { 'TIME' },
  }) do
    if not redis.acl_check_cmd(unpack(command)) then
      return redis.error_reply('NOPERM ' .. command[1])
    end
  end
end
return 'OK'
