-- What is due in a lane, in order, with the version of each; see claim.lua.
-- KEYS: cards, due. ARGV: now, limit, lane, 1 for the longest due.
local now = moment(ARGV[1])
local members = due_members(KEYS[2], ARGV[3], now, tonumber(ARGV[2]), ARGV[4] == '1')
local answer = { now }
for i, card in ipairs(lookup(KEYS[1], ids_of(members))) do
  answer[2 * i] = members[i]
  answer[2 * i + 1] = string.sub(card, 1, 8)
end
return answer
