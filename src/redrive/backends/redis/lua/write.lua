-- Write or remove letters, all or none: only if each is still at the version it was decided on, and held as it must be.
-- KEYS: letters, cards, leases, due, ends, then those that the changes name by their numbers.
-- ARGV: now, ids, versions, guards, voided (a 0 or 1 each), how many are written;
--       id and letter of each, id and card of each;
--       how many sorted sets change; for each: verb, number of the key, members of 24 bytes;
--       then for each count: number of the key, field, by how much.
-- Answers with the instant, and for each that stands in the way: its number, version, lease and letter.
local keys = { letters = KEYS[1], cards = KEYS[2], leases = KEYS[3], due = KEYS[4], ends = KEYS[5] }
local ids, versions, guards = cut(ARGV[2], 16), cut(ARGV[3], 8), cut(ARGV[4], 8)
local now = moment(ARGV[1])
local cards = lookup(keys.cards, ids)
local are_there = false
for i = 1, #ids do
  if cards[i] then
    are_there = true
    break
  end
end
local leases = are_there and lookup(keys.leases, ids) or {}

local answer, wrong = { now }, {}
for i = 1, #ids do
  local card, lease, guard = cards[i], leases[i], guards[i]
  local is_right = (card and string.sub(card, 1, 8) or ABSENT) == versions[i]
  if is_right and guard == FREE then
    is_right = not is_held(lease, now)
  elseif is_right and guard ~= ABSENT then
    is_right = lease and string.sub(lease, 1, 8) == guard and is_held(lease, now)
  end
  if not is_right then
    wrong[#wrong + 1] = ids[i]
    answer[4 * #wrong - 2] = i
    answer[4 * #wrong - 1] = card and string.sub(card, 1, 8)
    answer[4 * #wrong] = lease or false
  end
end
if #wrong > 0 then
  for i, letter in ipairs(lookup(keys.letters, wrong)) do
    answer[4 * i + 1] = letter
  end
  return answer
end

-- From here on nothing can fail: Redis denies memory, rights and a full disk at the first write of a script or not at all.
local written = tonumber(ARGV[6])
local start = 7
each('HSET', keys.letters, ARGV, start, start + 2 * written - 1)
start = start + 2 * written
each('HSET', keys.cards, ARGV, start, start + 2 * written - 1)
if written == 0 then
  each('HDEL', keys.letters, ids)
  each('HDEL', keys.cards, ids)
end

local gone, come, voided, gone_ends = {}, {}, {}, {}
for i = 1, #ids do
  local lease_end = end_of(leases[i])
  if cards[i] then
    gone[#gone + 1] = due_member(cards[i], lease_end, ids[i])
  end
  if lease_end and string.sub(ARGV[5], i, i) == '1' then
    voided[#voided + 1] = ids[i]
    gone_ends[#gone_ends + 1] = lease_end .. ids[i]
    lease_end = nil
  end
  if written > 0 then
    come[#come + 1] = due_member(ARGV[start + 2 * i - 1], lease_end, ids[i])
  end
end
each('HDEL', keys.leases, voided)
each('ZREM', keys.ends, gone_ends)
each('ZREM', keys.due, gone)
add(keys.due, come)
start = start + 2 * written

local sets = tonumber(ARGV[start])
for i = start + 1, start + 3 * sets, 3 do
  local key, members = KEYS[tonumber(ARGV[i + 1])], cut(ARGV[i + 2], 24)
  if ARGV[i] == 'ZADD' then
    add(key, members)
  else
    each('ZREM', key, members)
  end
end
for i = start + 3 * sets + 1, #ARGV, 3 do
  local key = KEYS[tonumber(ARGV[i])]
  if redis.call('HINCRBY', key, ARGV[i + 1], ARGV[i + 2]) <= 0 then
    redis.call('HDEL', key, ARGV[i + 1])
  end
end
return answer
