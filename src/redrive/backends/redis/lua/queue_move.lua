-- Put what stands for dying items into another queue, and delete them here.
-- ARGV: 5 where the other queue's keys begin, 6 its partitions, 7 expire after, 8 dedupe, 9 is ordered;
--       then of each: partition, id, and as in queue_put the instants and the item from its attempts on.
-- Answers with how many were deleted.
local to = all_opened(ARGV[5], ARGV[6])
if not to then
  return { GONE, '2' }
end
local room, dying = roomiest(to), {}
for i = 10, #ARGV, 4 do
  local p = opened(ARGV[1], ARGV[i])
  if not p then
    return { GONE, '1' }
  end
  if redis.call('ZSCORE', p.dying, ARGV[i + 1]) then
    if not partition_for(ARGV[5], ARGV[i + 2], room) then
      return { GONE, '2' }
    end
    dying[#dying + 1] = i
  end
end
local how = { expire_after = tonumber(ARGV[7]), dedupe = tonumber(ARGV[8]), is_ordered = ARGV[9] == '1' }
local touched, ids = {}, {}
for _, i in ipairs(dying) do
  local into, from = partition_for(ARGV[5], ARGV[i + 2], room), opened(ARGV[1], ARGV[i])
  put_one(into, ARGV[i + 2], ARGV[i + 3], how)
  touched[into], touched[from] = true, true
  ids[from] = ids[from] or {}
  table.insert(ids[from], ARGV[i + 1])
end
for from, some in pairs(ids) do
  remove(from, some)
end
for p in pairs(touched) do
  save(p)
end
return { OK, #dying }
