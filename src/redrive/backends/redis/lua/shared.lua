-- What several scripts need; put in front of each of them.
--
-- A card is version (8 bytes), generation (8), state (1: d = waits for a retry, o = open, c = closed), and for d also the
-- lane (8), the inverted priority (8) and the retry's instant (8); what follows is Python's affair.
-- A lease is token (8), end (8), generation (8), owner. Instants are microseconds, biased so that bytes sort as instants do.

local ABSENT = string.rep('\0', 8)
local FREE = string.rep('\255', 8)

local function micros()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Instants of our days fit a double; the bias only sets the highest bit.
local function biased(number)
  return '\128' .. string.sub(struct.pack('>I8', number), 2)
end

-- The instant given, else the server's.
local function moment(given)
  return given ~= '' and given or biased(micros())
end

-- When a lease that begins now ends: eight bytes when the caller owns the time, else a duration.
local function ending(given, until_or_duration)
  return given ~= '' and until_or_duration or biased(micros() + tonumber(until_or_duration))
end

-- Lua's own < goes by the locale of the server; this goes by bytes.
local function later(a, b)
  local a1, a2 = struct.unpack('>I4I4', a)
  local b1, b2 = struct.unpack('>I4I4', b)
  return a1 > b1 or (a1 == b1 and a2 > b2)
end

local function cut(joined, size)
  local list, count = {}, #joined / size
  for from = 0, count - 1, MOST do
    local some = math.min(MOST, count - from)
    local part = { struct.unpack(string.rep('c' .. size, some), joined, from * size + 1) }
    if count <= MOST then
      part[some + 1] = nil
      return part
    end
    for i = 1, some do
      list[from + i] = part[i]
    end
  end
  return list
end

local function add(key, members)
  local pairs_ = {}
  for i = 1, #members do
    pairs_[2 * i - 1] = '0'
    pairs_[2 * i] = members[i]
  end
  each('ZADD', key, pairs_)
end

-- Where a card's letter stands among those that wait for a retry: not before the end of the last lease on it.
local function due_member(card, lease_end, id)
  if string.sub(card, 17, 17) ~= 'd' then
    return nil
  end
  local at = string.sub(card, 34, 41)
  if lease_end and later(lease_end, at) then
    at = lease_end
  end
  return string.sub(card, 18, 33) .. at .. id
end

-- The first member of every priority in a lane, by jumping from one to the next.
local function heads(key, lane)
  local list, from, last = {}, '[' .. lane, '[' .. lane .. string.rep('\255', 33)
  while true do
    local head = redis.call('ZRANGEBYLEX', key, from, last, 'LIMIT', 0, 1)[1]
    if not head then
      return list
    end
    list[#list + 1] = head
    from = '(' .. string.sub(head, 1, 16) .. string.rep('\255', 25)
  end
end

-- Has the first of two members waited longer? By the instants, then by the ids.
local function waits_longer(a, b)
  local x, y = { struct.unpack('>I4I4I4I4I4I4', a, 17) }, { struct.unpack('>I4I4I4I4I4I4', b, 17) }
  for i = 1, 6 do
    if x[i] ~= y[i] then
      return x[i] < y[i]
    end
  end
  return false
end

-- What is due in a lane: the highest priority first, in it the longest due; or, with longest, those whatever their priority.
-- What is not due is not looked at.
local function due_members(key, lane, now, limit, longest)
  local members = {}
  for _, head in ipairs(heads(key, lane)) do
    local wanted = longest and limit or limit - #members
    if wanted == 0 then
      break
    end
    local last = '[' .. string.sub(head, 1, 16) .. now .. string.rep('\255', 16)
    for _, member in ipairs(redis.call('ZRANGEBYLEX', key, '[' .. head, last, 'LIMIT', 0, wanted)) do
      members[#members + 1] = member
    end
  end
  if longest then
    table.sort(members, waits_longer)
    for i = #members, limit + 1, -1 do
      members[i] = nil
    end
  end
  return members
end

local function ids_of(members)
  local ids = {}
  for i, member in ipairs(members) do
    ids[i] = string.sub(member, 25)
  end
  return ids
end

local function end_of(lease)
  return lease and string.sub(lease, 9, 16)
end

local function is_held(lease, now)
  return lease and later(end_of(lease), now)
end

-- Move letters to where they belong when their leases end then. All lists run side by side.
local function reschedule(keys, ids, cards, old_ends, new_end)
  local gone, come, gone_ends, come_ends = {}, {}, {}, {}
  for i = 1, #ids do
    local id, card, old = ids[i], cards[i], old_ends[i]
    local before = due_member(card, old, id)
    if before then
      gone[#gone + 1] = before
      come[#come + 1] = due_member(card, new_end, id)
    end
    if old then
      gone_ends[#gone_ends + 1] = old .. id
    end
    come_ends[i] = new_end .. id
  end
  each('ZREM', keys.due, gone)
  add(keys.due, come)
  each('ZREM', keys.ends, gone_ends)
  add(keys.ends, come_ends)
end

-- Lease letters to an owner, and answer with them. Nobody holds them; their old leases are over.
local function grant(keys, now, lease_end, owner, ids, cards, leases)
  if #ids == 0 then
    return { now, lease_end, '' }
  end
  -- The clock keeps tokens rising even if a server that is not durable forgot the last ones.
  local token = math.max((tonumber(redis.call('GET', keys.fence) or '0')) + 1, micros())
  redis.call('SET', keys.fence, string.format('%.0f', token))
  local packed = struct.pack('>I8', token)
  local answer, fields, old_ends = { now, lease_end, packed }, {}, {}
  local letters = lookup(keys.letters, ids)
  for i = 1, #ids do
    fields[2 * i - 1] = ids[i]
    fields[2 * i] = packed .. lease_end .. string.sub(cards[i], 9, 16) .. owner
    old_ends[i] = end_of(leases[i])
    answer[2 * i + 2] = letters[i]
    answer[2 * i + 3] = string.sub(cards[i], 1, 8)
  end
  each('HSET', keys.leases, fields)
  reschedule(keys, ids, cards, old_ends, lease_end)
  return answer
end
