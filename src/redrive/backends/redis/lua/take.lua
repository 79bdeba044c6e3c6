-- Lease those of the ids that are open and that nobody holds, in the order given.
-- KEYS: letters, cards, leases, due, ends, fence. ARGV: now, end or duration, owner, limit, ids, versions (zeros: any).
local keys = { letters = KEYS[1], cards = KEYS[2], leases = KEYS[3], due = KEYS[4], ends = KEYS[5], fence = KEYS[6] }
local now, limit = moment(ARGV[1]), tonumber(ARGV[4])
local wanted, versions = cut(ARGV[5], 16), cut(ARGV[6], 8)
local cards, leases = lookup(keys.cards, wanted), lookup(keys.leases, wanted)
local ids, taken, over = {}, {}, {}
for i = 1, #wanted do
  local card = cards[i]
  if #ids == limit then
    break
  end
  if
    card
    and string.sub(card, 17, 17) ~= 'c'
    and (versions[i] == ABSENT or versions[i] == string.sub(card, 1, 8))
    and not is_held(leases[i], now)
  then
    local n = #ids + 1
    ids[n], taken[n], over[n] = wanted[i], card, leases[i]
  end
end
return grant(keys, now, ending(ARGV[1], ARGV[2]), ARGV[3], ids, taken, over)
