-- What the scripts of queues need; put in front of each of them.
--
-- ARGV: 1 the queue's keys begin with this, 2 now (empty: the server's clock), 3 random bytes for new positions, 4 partitions.
-- KEYS: 1 what is due in which partition, 2 the number of changes, 3 the queue's bucket. On a cluster all others are named too.
-- Every answer begins with 0, or with why it was refused: then nothing was written.

local OK, GONE, NO_SUCH, NOT_LEASED = 0, 1, 2, 3
local SOON = 100000
local NEVER = 4611686018427387904
local EPOCH = 1400000000
local DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
local LANES = '9876543210' -- by priority: the score among the ready. As text: to write a number as text takes longer
local ZERO4, ZERO8 = string.rep('\0', 4), string.rep('\0', 8)
local STATE = '>dddddddddd'

local now = tonumber(ARGV[2])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local now_raw = struct.pack('>I8', now)
local this_second = math.max(math.floor(now / 1000000) - EPOCH, 0)
local random_used = 0

local function whole(number)
  return string.format('%.0f', number)
end

local function number_at(text, at)
  return (struct.unpack('>I8', text, at))
end

-- The values given from this one on.
local function given(from)
  local list = {}
  for i = from, #ARGV do
    list[i - from + 1] = ARGV[i]
  end
  return list
end

local NAMES = {
  items = 1, ready = 1, leased = 1, ends = 1, schedule = 1, scheduled = 1, early = 1, dying = 1, sources = 1, keys = 1,
  lines = 1, behind = 1, seen = 1, state = 1,
}
-- A partition's keys are made up when they are needed.
local named = {
  __index = function(p, name)
    if NAMES[name] then
      local key = p.base .. name
      rawset(p, name, key)
      return key
    end
  end,
}
local known = {}

-- A partition as it stands; nil when it was removed. What is changed in it is written by `save`.
local function opened(root, number)
  local base = root .. number .. ':'
  if known[base] then
    return known[base]
  end
  local state = redis.call('GET', base .. 'state')
  if state == 'gone' then
    return nil
  end
  local p = setmetatable({ number = number, base = base, set = {}, del = {}, lined = {}, freed = {}, dead = {} }, named)
  if state then
    p.second, p.latest, p.due, p.from, p.created_s, p.created_us, p.leased_s, p.leased_us, p.deaths, p.digit, p.run =
      struct.unpack(STATE .. 'c26', state)
  else
    p.second, p.latest, p.due, p.from, p.deaths = -1, 0, NEVER, math.floor(now / 1000000), 0
    p.created_s, p.created_us, p.leased_s, p.leased_us, p.digit, p.run = 0, 0, 0, 0, 0, string.rep('0', 26)
  end
  p.was_due = p.due
  known[base] = p
  return p
end

-- All partitions, in the order in which they are named; nil when one of them was removed.
local function all_opened(root, numbers)
  local list = {}
  for number in string.gmatch(numbers, '%d+') do
    local p = opened(root, number)
    if not p then
      return nil
    end
    list[#list + 1] = p
  end
  return list
end

-- Write what has been put off.
local function flush(p)
  each('HSET', p.items, p.set)
  each('HDEL', p.items, p.del)
  each('ZADD', p.ready, p.lined)
  p.is_grave = p.is_grave or #p.dead > 0
  each('ZADD', p.dying, p.dead)
  if #p.freed > 0 then
    each('HDEL', p.leased, p.freed)
    each('ZREM', p.ends, p.freed)
  end
  p.set, p.del, p.lined, p.dead, p.freed = {}, {}, {}, {}, {}
end

local function save(p)
  flush(p)
  if p.shrank and redis.call('EXISTS', p.items) == 0 then
    p.latest, p.due = 0, NEVER
  end
  if p.due ~= p.was_due or p.is_grave then
    -- Where items are dying, it is long overdue.
    local due = redis.call('EXISTS', p.dying) == 1 and 1 or p.due
    if due < NEVER then
      redis.call('ZADD', KEYS[1], whole(due), p.base)
    else
      redis.call('ZREM', KEYS[1], p.base)
    end
  end
  redis.call('SET', p.state, struct.pack(
    STATE .. 'c26', p.second, p.latest, p.due, p.from, p.created_s, p.created_us, p.leased_s, p.leased_us, p.deaths, p.digit, p.run
  ))
  if p.rose then
    redis.call('INCR', KEYS[2])
  end
end

-- The sums behind the averages: in two parts, relative to the partition's first second, so that doubles keep them exactly.
local function count_created(p, created, times)
  local second = math.floor(created / 1000000)
  p.created_s = p.created_s + times * (second - p.from)
  p.created_us = p.created_us + times * (created - second * 1000000)
end

local function count_leased(p, at, times)
  local second = math.floor(at / 1000000)
  p.leased_s = p.leased_s + times * (second - p.from)
  p.leased_us = p.leased_us + times * (at - second * 1000000)
end
