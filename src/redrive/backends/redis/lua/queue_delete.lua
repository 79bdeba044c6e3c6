-- Delete items, leased or not. ARGV: 5 and on, the ids.
local p = opened(ARGV[1], ARGV[4])
if not p then
  return { GONE }
end
local ids = given(5)
for i, item in ipairs(lookup(p.items, ids)) do
  if not item then
    return { NO_SUCH, ids[i] }
  end
end
if #ids > 0 then
  remove(p, ids)
  save(p)
end
return { OK }
