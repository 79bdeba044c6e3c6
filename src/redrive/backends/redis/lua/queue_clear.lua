-- Delete all items in some places. ARGV: 5 places (r, l, s, b, d). Answers with how many.
local KEYS_OF = { r = 'ready', l = 'ends', s = 'scheduled', b = 'behind', d = 'dying' }
local CHUNK = 1000
local partitions = all_opened(ARGV[1], ARGV[4])
if not partitions then
  return { GONE }
end

local function cleared(p)
  local count = 0
  for place in string.gmatch(ARGV[5], '.') do
    count = count + redis.call('ZCARD', p[KEYS_OF[place]])
  end
  if count == redis.call('HLEN', p.items) then
    -- All of them: nobody need be looked at.
    redis.call('UNLINK', p.items, p.ready, p.leased, p.ends, p.schedule, p.scheduled, p.early, p.dying, p.sources, p.keys,
      p.lines, p.behind)
    p.created_s, p.created_us, p.leased_s, p.leased_us, p.shrank = 0, 0, 0, 0, true
    return count
  end
  local behind, ids = {}, {}
  for place in string.gmatch(ARGV[5], '.') do
    local list = place == 'b' and behind or ids
    for _, id in ipairs(redis.call('ZRANGE', p[KEYS_OF[place]], 0, -1)) do
      list[#list + 1] = id
    end
  end
  if has_keys(p) then
    table.sort(ids, before)
  end
  for _, list in ipairs({ behind, ids }) do
    for from = 1, #list, CHUNK do
      remove(p, { unpack(list, from, math.min(from + CHUNK - 1, #list)) })
      flush(p)
    end
  end
  return count
end

local count = 0
for _, p in ipairs(partitions) do
  local some = cleared(p)
  if some > 0 then
    save(p)
  end
  count = count + some
end
return { OK, count }
