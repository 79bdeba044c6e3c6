-- May this user run everything that the scripts of queues run? A right that is missing would end a script in its middle.
-- KEYS: any key of the queues.
if redis.acl_check_cmd then -- since Redis 7
  local key = KEYS[1]
  for _, command in ipairs({
    { 'TIME' }, { 'EXISTS', key }, { 'UNLINK', key }, { 'DEL', key }, { 'GET', key }, { 'SET', key, 'a' }, { 'INCR', key },
    { 'HSET', key, 'a', 'b' }, { 'HSETNX', key, 'a', 'b' }, { 'HGET', key, 'a' }, { 'HMGET', key, 'a' }, { 'HDEL', key, 'a' },
    { 'HEXISTS', key, 'a' }, { 'HLEN', key }, { 'HGETALL', key }, { 'HINCRBY', key, 'a', '1' },
    { 'SADD', key, 'a' }, { 'SREM', key, 'a' }, { 'SISMEMBER', key, 'a' },
    { 'ZADD', key, '0', 'a' }, { 'ZREM', key, 'a' }, { 'ZCARD', key }, { 'ZCOUNT', key, '0', '1' }, { 'ZSCORE', key, 'a' },
    { 'ZPOPMIN', key, '1' }, { 'ZRANGE', key, '0', '0' }, { 'ZRANGEBYSCORE', key, '0', '1' }, { 'ZRANGEBYLEX', key, '-', '+' },
    { 'ZREMRANGEBYRANK', key, '0', '0' },
  }) do
    if not redis.acl_check_cmd(unpack(command)) then
      return redis.error_reply('NOPERM ' .. command[1])
    end
  end
end
return 'OK'
