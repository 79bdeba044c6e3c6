-- Let leases end later, or sooner. ARGV: 5 for how long, then the ids. Answers with when they end.
local p = opened(ARGV[1], ARGV[4])
if not p then
  return { GONE }
end
local ids, until_ = given(6), now + tonumber(ARGV[5])
local leases, refused = held(p, ids)
if refused then
  return refused
end
local ending, until_raw = whole(until_), struct.pack('>I8', until_)
local fields, ends = {}, {}
for i, id in ipairs(ids) do
  fields[2 * i - 1], fields[2 * i] = id, until_raw .. string.sub(leases[i], 9)
  ends[2 * i - 1], ends[2 * i] = ending, id
end
each('HSET', p.leased, fields)
each('ZADD', p.ends, ends)
if #ids > 0 then
  by_when(p, until_)
  save(p)
end
return { OK, ending }
