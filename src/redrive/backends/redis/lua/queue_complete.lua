-- Delete leased items. ARGV: 5 and on, the ids.
local p = opened(ARGV[1], ARGV[4])
if not p then
  return { GONE }
end
local ids = given(5)
local leases, refused = held(p, ids)
if refused then
  return refused
end
for i, id in ipairs(ids) do
  local lease = leases[i]
  let_go(p, id, lease)
  local created, s = struct.unpack('>I8I4', lease, 17)
  forget(p, id, created, string.sub(lease, 29, 28 + s))
  release(p, string.sub(lease, 29 + s))
end
if #ids > 0 then
  save(p)
end
return { OK }
