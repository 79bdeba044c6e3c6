-- Lease what is due in a lane.
-- KEYS: letters, cards, leases, due, ends, fence. ARGV: now, end or duration, owner, limit, lane, 1 for the longest due.
local keys = { letters = KEYS[1], cards = KEYS[2], leases = KEYS[3], due = KEYS[4], ends = KEYS[5], fence = KEYS[6] }
local now = moment(ARGV[1])
local ids = ids_of(due_members(keys.due, ARGV[5], now, tonumber(ARGV[4]), ARGV[6] == '1'))
return grant(keys, now, ending(ARGV[1], ARGV[2]), ARGV[3], ids, lookup(keys.cards, ids), lookup(keys.leases, ids))
