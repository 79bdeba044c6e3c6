-- How many members each of these sorted sets has from one instant to the next. KEYS: the sets. ARGV: instants, rising.
-- Answers for each set with a list of as many numbers as there are gaps between the instants; or, where that takes fewer
-- looks, with the instants of all members between the first and the last.
local edges = cut(ARGV[1], 8)
local first, last = '[' .. edges[1], '(' .. edges[#edges]
local counts

-- Halves what it knows the total of, and looks no closer where there is nothing.
local function share_out(key, from, to, total)
  if to - from == 1 or total == 0 then
    for i = from, to - 1 do
      counts[i] = total
    end
    return
  end
  local middle = math.floor((from + to) / 2)
  local before = redis.call('ZLEXCOUNT', key, '[' .. edges[from], '(' .. edges[middle])
  share_out(key, from, middle, before)
  share_out(key, middle, to, total - before)
end

local answer = {}
for i = 1, #KEYS do
  local total = redis.call('ZLEXCOUNT', KEYS[i], first, last)
  if total == 0 then
    answer[i] = ''
  elseif total < 2 * #edges then
    local members = redis.call('ZRANGEBYLEX', KEYS[i], first, last)
    for place, member in ipairs(members) do
      members[place] = string.sub(member, 1, 8)
    end
    answer[i] = table.concat(members)
  else
    counts = {}
    share_out(KEYS[i], 1, #edges, total)
    answer[i] = counts
  end
end
return answer
