-- Items that were given up on. ARGV: 5 limit. Answers with partition, id and item of each.
local partitions = all_opened(ARGV[1], ARGV[4])
if not partitions then
  return { GONE }
end
local answer, left = { OK }, tonumber(ARGV[5])
for _, p in ipairs(partitions) do
  local ids = left > 0 and redis.call('ZRANGE', p.dying, 0, left - 1) or {}
  left = left - #ids
  for i, item in ipairs(lookup(p.items, ids)) do
    answer[#answer + 1] = p.number
    answer[#answer + 1] = ids[i]
    answer[#answer + 1] = item
  end
end
return answer
