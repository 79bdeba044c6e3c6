-- Letters or cards by their ids. KEYS: letters or cards, cards, leases. ARGV: now, ids.
-- Answers with the instant, and for each: the value, its version, the lease on it.
local ids = cut(ARGV[2], 16)
local answer = { moment(ARGV[1]) }
local values, leases = lookup(KEYS[1], ids), lookup(KEYS[3], ids)
local cards = KEYS[1] == KEYS[2] and values or lookup(KEYS[2], ids)
for i = 1, #ids do
  answer[3 * i - 1] = values[i]
  answer[3 * i] = cards[i] and string.sub(cards[i], 1, 8)
  answer[3 * i + 1] = leases[i]
end
return answer
