-- What is due, in order, with the version of each; see claim.lua.
-- KEYS: cards, due. ARGV: now, limit.
local now, limit = moment(ARGV[1]), tonumber(ARGV[2])
local members, ids, from = {}, {}, '-'
while #ids < limit do
  local head = redis.call('ZRANGEBYLEX', KEYS[2], from, '+', 'LIMIT', 0, 1)[1]
  if not head then
    break
  end
  local level = string.sub(head, 1, 8)
  local last = '[' .. level .. now .. string.rep('\255', 16)
  for _, member in ipairs(redis.call('ZRANGEBYLEX', KEYS[2], '[' .. head, last, 'LIMIT', 0, limit - #ids)) do
    members[#members + 1] = member
    ids[#ids + 1] = string.sub(member, 17)
  end
  from = '(' .. level .. string.rep('\255', 25)
end
local answer = { now }
for i, card in ipairs(lookup(KEYS[1], ids)) do
  answer[2 * i] = members[i]
  answer[2 * i + 1] = string.sub(card, 1, 8)
end
return answer
