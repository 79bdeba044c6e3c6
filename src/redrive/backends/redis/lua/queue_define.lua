-- Write queues into the catalogue, if it is of this version. KEYS: the catalogue. ARGV: version, how many are dropped, their ids;
-- then id and definition of each. Answers with 1 when it was.
if (redis.call('HGET', KEYS[1], 'version') or '0') ~= ARGV[1] then
  return 0
end
local dropped = tonumber(ARGV[2])
for i = 3 + dropped, #ARGV, 2 do
  redis.call('HSET', KEYS[1], 'queue:' .. ARGV[i], ARGV[i + 1])
end
for i = 3, 2 + dropped do
  redis.call('HDEL', KEYS[1], 'queue:' .. ARGV[i])
end
redis.call('HINCRBY', KEYS[1], 'version', 1)
return 1
