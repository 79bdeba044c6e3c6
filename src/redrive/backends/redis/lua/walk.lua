-- The next letters or cards along a sorted set of members that end with an id.
-- KEYS: letters or cards, cards, leases, the set. ARGV: now, verb, one end, other end, how many.
-- Answers with the instant, and for each: the member, the value, its version, the lease on it.
local members = redis.call(ARGV[2], KEYS[4], ARGV[3], ARGV[4], 'LIMIT', 0, ARGV[5])
local ids = {}
for i = 1, #members do
  ids[i] = string.sub(members[i], -16)
end
local answer = { moment(ARGV[1]) }
local values, leases = lookup(KEYS[1], ids), lookup(KEYS[3], ids)
local cards = KEYS[1] == KEYS[2] and values or lookup(KEYS[2], ids)
for i = 1, #ids do
  answer[4 * i - 2] = members[i]
  answer[4 * i - 1] = values[i]
  answer[4 * i] = cards[i] and string.sub(cards[i], 1, 8)
  answer[4 * i + 1] = leases[i]
end
return answer
