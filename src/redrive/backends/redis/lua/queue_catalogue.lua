-- The catalogue, unless it is of this version. KEYS: the catalogue. ARGV: version.
local version = redis.call('HGET', KEYS[1], 'version') or '0'
if version == ARGV[1] then
  return {}
end
return redis.call('HGETALL', KEYS[1])
