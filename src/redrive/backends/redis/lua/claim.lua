-- Lease what is due: the highest priority first, in it the longest due. Levels are jumped to; what is not due is not looked at.
-- KEYS: letters, cards, leases, due, ends, fence. ARGV: now, end or duration, owner, limit.
local keys = { letters = KEYS[1], cards = KEYS[2], leases = KEYS[3], due = KEYS[4], ends = KEYS[5], fence = KEYS[6] }
local now, limit = moment(ARGV[1]), tonumber(ARGV[4])
local ids, from = {}, '-'
while #ids < limit do
  local head = redis.call('ZRANGEBYLEX', keys.due, from, '+', 'LIMIT', 0, 1)[1]
  if not head then
    break
  end
  local level = string.sub(head, 1, 8)
  local last = '[' .. level .. now .. string.rep('\255', 16)
  for _, member in ipairs(redis.call('ZRANGEBYLEX', keys.due, '[' .. head, last, 'LIMIT', 0, limit - #ids)) do
    ids[#ids + 1] = string.sub(member, 17)
  end
  from = '(' .. level .. string.rep('\255', 25)
end
return grant(keys, now, ending(ARGV[1], ARGV[2]), ARGV[3], ids, lookup(keys.cards, ids), lookup(keys.leases, ids))
