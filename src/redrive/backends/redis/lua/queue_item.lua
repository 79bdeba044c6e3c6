-- Items: their ids, their bytes, and where they stand.
--
-- An item: place (1), why (1), created, updated, enqueue, expire (8 each), attempts (4), priority (1), the lengths (4 each) of
-- message id, source id, key, story, failure, reference, encoding, kind; then these; the rest is its payload. While it is leased it
-- stays as it was: its lease says the rest. A message id that is empty is the position id.
-- A lease: until, updated, created (8 each), the length of the source id (4), source id, key.

-- A second of four bytes and sixteen random ones, of which the highest bit stays free: see model/ksuid.py.
local function begin(p)
  local bytes = { string.byte(struct.pack('>I4', this_second) .. string.sub(ARGV[3], random_used + 1, random_used + 16), 1, 20) }
  random_used = random_used + 16
  bytes[5] = bytes[5] % 128
  local chars, digit = {}, 0
  for place = 27, 1, -1 do
    digit = 0
    for i = 1, 20 do
      local value = digit * 256 + bytes[i]
      bytes[i] = math.floor(value / 62)
      digit = value % 62
    end
    chars[place] = string.sub(DIGITS, digit + 1, digit + 1)
    if place == 27 then
      p.digit = digit
    end
  end
  p.second, p.run = this_second, table.concat(chars, '', 1, 26)
end

local function next_id(p)
  if p.second < this_second then
    begin(p)
  end
  p.digit = p.digit + 1
  if p.digit == 62 then
    p.digit = 0
    for i = 26, 1, -1 do
      local at = string.find(DIGITS, string.sub(p.run, i, i), 1, true)
      if at < 62 then
        p.run = string.sub(p.run, 1, i - 1) .. string.sub(DIGITS, at + 1, at + 1) .. string.rep('0', 26 - i)
        break
      end
    end
  end
  return p.run .. string.sub(DIGITS, p.digit + 1, p.digit + 1)
end

local function source_of(item)
  local m, s = struct.unpack('>I4I4', item, 40)
  return string.sub(item, 72 + m, 71 + m + s)
end

local function key_of(item)
  if string.sub(item, 48, 51) == ZERO4 then
    return ''
  end
  local m, s, k = struct.unpack('>I4I4I4', item, 40)
  return string.sub(item, 72 + m + s, 71 + m + s + k)
end

local function attempts_of(item)
  return (struct.unpack('>I4', item, 35))
end

-- The item as it is from now on, elsewhere; with an old id, it gets another one and remembers who it is.
-- `told`: its failure from now on, where it is not empty.
local function changed(item, place, why, enqueue, attempts, old_id, told)
  local head = place .. why .. string.sub(item, 3, 10) .. now_raw .. (enqueue or string.sub(item, 19, 26))
    .. string.sub(item, 27, 34) .. struct.pack('>I4', attempts) .. string.sub(item, 39, 39)
  local m, s, k, t, f = struct.unpack('>I4I4I4I4I4', item, 40)
  local message_id = m == 0 and old_id or string.sub(item, 72, 71 + m)
  local rest
  if told and told ~= '' then
    local at = 72 + m + s + k + t
    rest = string.sub(item, 72 + m, at - 1) .. told .. string.sub(item, at + f)
    f = #told
  else
    rest = string.sub(item, 72 + m)
  end
  return head .. struct.pack('>I4I4I4I4I4', #message_id, s, k, t, f) .. string.sub(item, 60, 71) .. message_id .. rest
end

local function by_when(p, at)
  if at < p.due then
    p.due = at
  end
end

-- Ready items of a priority stand in the order of their positions, and whoever came later expires later; the few for whom that
-- is not so are in `early`.
local function line_up(p, id, item)
  local priority = string.byte(item, 39)
  p.lined[#p.lined + 1] = string.sub(LANES, priority + 1, priority + 1)
  p.lined[#p.lined + 1] = id
  local expire = number_at(item, 27)
  if expire > 0 then
    by_when(p, expire)
  else
    expire = NEVER
  end
  if expire >= p.latest then
    p.latest = expire
  else
    redis.call('ZADD', p.early, whole(expire), id)
  end
  p.rose = true
end

local function set_aside(p, id, item)
  local at, expire = number_at(item, 19), number_at(item, 27)
  if expire > 0 and expire < at then
    at = expire
  end
  redis.call('ZADD', p.schedule, whole(at), id)
  redis.call('ZADD', p.scheduled, 0, id)
  by_when(p, at)
end

local function keep(p, id, item)
  p.set[#p.set + 1] = id
  p.set[#p.set + 1] = item
end

-- The item at the tail, ready, under a new id.
local function renew(p, id, item, attempts, told)
  local new_id = next_id(p)
  local renewed = changed(item, 'r', '-', nil, attempts, id, told)
  p.del[#p.del + 1] = id
  keep(p, new_id, renewed)
  line_up(p, new_id, renewed)
end

-- The item on the schedule, under a new id.
local function postpone(p, id, item, attempts, enqueue, told)
  local new_id = next_id(p)
  local renewed = changed(item, 's', '-', enqueue, attempts, id, told)
  p.del[#p.del + 1] = id
  keep(p, new_id, renewed)
  count_created(p, number_at(item, 3), -1)
  set_aside(p, new_id, renewed)
end
