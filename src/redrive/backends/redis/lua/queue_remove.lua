-- Delete partitions with all that is in them, and remember that they were.
for number in string.gmatch(ARGV[4], '%d+') do
  local base = ARGV[1] .. number .. ':'
  for name in pairs(NAMES) do
    redis.call('UNLINK', base .. name)
  end
  redis.call('SET', base .. 'state', 'gone')
  redis.call('ZREM', KEYS[1], base)
end
redis.call('DEL', KEYS[3])
return { OK }
