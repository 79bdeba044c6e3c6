-- The queues in which something is due next. ARGV: 5 limit. Answers with partition (where its keys begin) and instant of each: the
-- soonest of each queue.
local answer, seen, count, from, limit = { OK }, {}, 0, 0, tonumber(ARGV[5])
while count < limit do
  local some = redis.call('ZRANGE', KEYS[1], from, from + 255, 'WITHSCORES')
  for i = 1, #some, 2 do
    local queue = string.match(some[i], '^(.*:)%d+:$')
    if not seen[queue] and count < limit then
      seen[queue] = true
      count = count + 1
      answer[2 * count], answer[2 * count + 1] = queue, some[i + 1]
    end
  end
  if #some < 512 then
    break
  end
  from = from + 256
end
return answer
