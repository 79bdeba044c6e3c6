-- How many members each of these sorted sets has, and its first and last one. KEYS: the sets.
local answer = {}
for i = 1, #KEYS do
  answer[3 * i - 2] = redis.call('ZCARD', KEYS[i])
  answer[3 * i - 1] = redis.call('ZRANGE', KEYS[i], 0, 0)[1] or false
  answer[3 * i] = redis.call('ZREVRANGE', KEYS[i], 0, 0)[1] or false
end
return answer
