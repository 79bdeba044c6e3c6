-- Lease items of the fullest partition. ARGV: 5 limit, 6 for how long, 7 rate, 8 whether items expire, 9 after how many dying to
-- stop, so that the server serves others in between.
-- Answers with partition, now, until, how many are dying, how long to wait; then id and item of each.
local partitions = all_opened(ARGV[1], ARGV[4])
if not partitions then
  return { GONE }
end
local p, most = partitions[1], 0
for _, one in ipairs(partitions) do
  local ready = redis.call('ZCARD', one.ready)
  if ready > most then
    p, most = one, ready
  end
end
local limit, until_, rate, expires = tonumber(ARGV[5]), now + tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8] == '1'
local most_dying = tonumber(ARGV[9])
local answer = { OK, p.number, whole(now), whole(until_), 0, '0' }

-- As model/bucket.py has it.
local tokens, filled_at
if rate > 0 then
  tokens, filled_at = 0, 0
  local bucket = redis.call('GET', KEYS[3])
  if bucket then
    tokens, filled_at = struct.unpack('>dd', bucket)
  end
  tokens = math.min(math.max(rate, 1), tokens + math.max(now - filled_at, 0) * rate / 1e6)
  filled_at = math.max(now, filled_at)
  local passing = math.floor(tokens + 1e-9)
  if passing <= 0 and most > 0 then
    redis.call('SET', KEYS[3], struct.pack('>dd', tokens, filled_at))
    answer[4], answer[6] = '0', whole(math.max(math.ceil((1 - tokens) / rate * 1e6), 1))
    return answer
  end
  limit = math.min(limit, passing)
end

local until_raw = struct.pack('>I8', until_)
local leases, ends, count, dying = {}, {}, 0, 0
local may_be_early = has_keys(p) or redis.call('EXISTS', p.early) == 1

local function give(ids)
  local items = lookup(p.items, ids)
  for i, id in ipairs(ids) do
    local item = items[i]
    if is_expired(item, expires) then
      give_up(p, id, item, 'e', attempts_of(item))
      dying = dying + 1
    else
      local more = ZERO4
      if string.sub(item, 44, 51) ~= ZERO8 then
        local m, s, k = struct.unpack('>I4I4I4', item, 40)
        more = struct.pack('>I4', s) .. string.sub(item, 72 + m, 71 + m + s + k)
      end
      count = count + 1
      leases[2 * count - 1], leases[2 * count] = id, until_raw .. now_raw .. string.sub(item, 3, 10) .. more
      ends[2 * count - 1], ends[2 * count] = answer[4], id
      answer[2 * count + 5], answer[2 * count + 6] = id, item
    end
  end
  if may_be_early then
    each('ZREM', p.early, ids)
  end
end

local function popped(wanted)
  local ids = redis.call('ZPOPMIN', p.ready, wanted)
  for i = 1, #ids / 2 do
    ids[i] = ids[2 * i - 1]
  end
  for i = #ids, #ids / 2 + 1, -1 do
    ids[i] = nil
  end
  return ids
end

local function popped_of(lane, wanted)
  local ids = redis.call('ZRANGEBYSCORE', p.ready, lane, lane, 'LIMIT', 0, wanted)
  each('ZREM', p.ready, ids)
  return ids
end

-- Where there are keys, who is given up on lets another line up: in a priority that has had its turn, or will.
for lane = 0, has_keys(p) and 9 or 0 do
  while count < limit and dying < most_dying and most > 0 do
    local wanted = math.min(limit - count, MOST)
    local ids
    if has_keys(p) then
      flush(p)
      ids = popped_of(lane, wanted)
    else
      ids = popped(wanted)
    end
    if #ids == 0 then
      break
    end
    give(ids)
  end
end
if count > 0 then
  each('HSET', p.leased, leases)
  each('ZADD', p.ends, ends)
  count_leased(p, now, count)
  by_when(p, until_)
end
if rate > 0 then
  redis.call('SET', KEYS[3], struct.pack('>dd', tokens - count, filled_at))
end
if count > 0 or dying > 0 then
  save(p)
end
answer[5] = dying
return answer
