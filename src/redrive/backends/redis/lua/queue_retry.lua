-- Give leased items back. ARGV: 5 most attempts, then of each: id, whether it is dead (1) and not before when (8), failure.
-- Answers with how many are ready and how many dying.
local p = opened(ARGV[1], ARGV[4])
if not p then
  return { GONE }
end
local most, ids = tonumber(ARGV[5]), {}
for i = 6, #ARGV, 3 do
  ids[#ids + 1] = ARGV[i]
end
local leases, refused = held(p, ids)
if refused then
  return refused
end
local items, ready, dying = lookup(p.items, ids), 0, 0
for i, id in ipairs(ids) do
  local item, how, told = items[i], ARGV[3 * i + 4], ARGV[3 * i + 5]
  local attempts, is_dead = attempts_of(item) + 1, string.sub(how, 1, 1) == '1'
  let_go(p, id, leases[i])
  if is_dead or is_spent(attempts, most) then
    give_up(p, id, item, is_dead and 't' or 'a', attempts, told)
    dying = dying + 1
  elseif number_at(how, 2) >= now + SOON then
    postpone(p, id, item, attempts, string.sub(how, 2), told)
  else
    renew(p, id, item, attempts, told)
    ready = ready + 1
  end
end
if #ids > 0 then
  save(p)
end
return { OK, ready, dying }
