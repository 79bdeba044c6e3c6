-- Put items. ARGV: 5 expire after, 6 dedupe, 7 is ordered, 8 plain or apart; then each item from its attempts on, with `apart` its
-- instants (and partition) before it. Answers with the ids.
local partitions = all_opened(ARGV[1], ARGV[4])
if not partitions then
  return { GONE }
end
local room = roomiest(partitions)
if ARGV[8] == 'plain' then
  local ids = put_plain(room, 9, tonumber(ARGV[5]))
  save(room)
  return { OK, ids }
end
local how = { expire_after = tonumber(ARGV[5]), dedupe = tonumber(ARGV[6]), is_ordered = ARGV[7] == '1' }
for i = 9, #ARGV, 2 do
  if not partition_for(ARGV[1], ARGV[i], room) then
    return { GONE }
  end
end
local ids, touched = {}, {}
for i = 9, #ARGV, 2 do
  local p = partition_for(ARGV[1], ARGV[i], room)
  ids[#ids + 1] = put_one(p, ARGV[i], ARGV[i + 1], how)
  touched[p] = true
end
for p in pairs(touched) do
  save(p)
end
return { OK, ids }
