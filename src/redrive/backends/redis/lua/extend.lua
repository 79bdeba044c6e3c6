-- Move the ends of live leases, never back.
-- KEYS: cards, leases, due, ends. ARGV: now, end or duration, ids, tokens, generations.
-- Answers for each with its end, or nothing when it is lost.
local keys = { cards = KEYS[1], leases = KEYS[2], due = KEYS[3], ends = KEYS[4] }
local now, new_end = moment(ARGV[1]), ending(ARGV[1], ARGV[2])
local ids, tokens, generations = cut(ARGV[3], 16), cut(ARGV[4], 8), cut(ARGV[5], 8)
local cards, leases = lookup(keys.cards, ids), lookup(keys.leases, ids)
local answer, moved, seen = {}, { ids = {}, cards = {}, ends = {} }, {}
local fields = {}
for i = 1, #ids do
  local id, lease = ids[i], leases[i]
  if cards[i] and is_held(lease, now) and string.sub(lease, 1, 8) == tokens[i] and string.sub(lease, 17, 24) == generations[i] then
    local old = end_of(lease)
    if later(new_end, old) then
      answer[i] = new_end
      if not seen[id] then
        seen[id] = true
        local n = #moved.ids + 1
        moved.ids[n], moved.cards[n], moved.ends[n] = id, cards[i], old
        fields[2 * n - 1], fields[2 * n] = id, tokens[i] .. new_end .. string.sub(lease, 17)
      end
    else
      answer[i] = old
    end
  else
    answer[i] = false
  end
end
each('HSET', keys.leases, fields)
reschedule(keys, moved.ids, moved.cards, moved.ends, new_end)
return answer
