-- When the next letter of some lanes may be claimed as due, by one look at each priority. KEYS: due. ARGV: lanes.
-- Answers with the instant, and with that of the letter; without it, none waits for a retry.
local earliest = false
for _, lane in ipairs(cut(ARGV[1], 8)) do
  for _, head in ipairs(heads(KEYS[1], lane)) do
    local at = string.sub(head, 17, 24)
    if not earliest or later(earliest, at) then
      earliest = at
    end
  end
end
return { moment(''), earliest }
