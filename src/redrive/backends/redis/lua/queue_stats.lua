-- How partitions stand. Answers with now; then of each: number, all, leased, ready, scheduled, behind, dying, and the sums behind
-- its averages: from which second they count, created (seconds, micros), leased (seconds, micros).
local partitions = all_opened(ARGV[1], ARGV[4])
if not partitions then
  return { GONE }
end
local answer = { OK, whole(now) }
for _, p in ipairs(partitions) do
  answer[#answer + 1] = {
    tonumber(p.number), redis.call('HLEN', p.items), redis.call('HLEN', p.leased), redis.call('ZCARD', p.ready),
    redis.call('ZCARD', p.scheduled), redis.call('ZCARD', p.behind), redis.call('ZCARD', p.dying),
    whole(p.from), whole(p.created_s), whole(p.created_us), whole(p.leased_s), whole(p.leased_us),
  }
end
return answer
