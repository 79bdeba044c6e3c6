-- When the next letter may be claimed as due, by one look at each priority. KEYS: due.
-- Answers with the instant, and with that of the letter; without it, none waits for a retry.
local earliest, from = false, '-'
while true do
  local head = redis.call('ZRANGEBYLEX', KEYS[1], from, '+', 'LIMIT', 0, 1)[1]
  if not head then
    return { moment(''), earliest }
  end
  local at = string.sub(head, 9, 16)
  if not earliest or later(earliest, at) then
    earliest = at
  end
  from = '(' .. string.sub(head, 1, 8) .. string.rep('\255', 25)
end
