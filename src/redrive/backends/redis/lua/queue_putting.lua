-- How items are put into a partition.

-- Is it there already? If not, it is known from now on.
local function is_known(p, item, dedupe)
  local m, s, k, t, f, r = struct.unpack('>I4I4I4I4I4I4', item, 40)
  local source, before = string.sub(item, 72 + m, 71 + m + s), 71 + m + s + k + t + f
  local reference = dedupe > 0 and string.sub(item, before + 1, before + r) or ''
  if source ~= '' and redis.call('SISMEMBER', p.sources, source) == 1 then
    return true
  end
  if reference ~= '' then
    if tonumber(redis.call('ZSCORE', p.seen, reference) or 0) > now then
      return true
    end
    redis.call('ZADD', p.seen, whole(now + dedupe), reference)
  end
  if source ~= '' then
    redis.call('SADD', p.sources, source)
  end
  return false
end

-- References whose time is over, the oldest first, and not too many at once.
local function forget_seen(p, most)
  local over = math.min(redis.call('ZCOUNT', p.seen, '-inf', whole(now)), most)
  if over > 0 then
    redis.call('ZREMRANGEBYRANK', p.seen, 0, over - 1)
  end
end

-- Items about which nothing is said but what is in them: from their attempts on, in ARGV from there on.
local function put_plain(p, from, expire_after)
  local expire, count = expire_after > 0 and now + expire_after or 0, #ARGV - from + 1
  local head = 'r-' .. now_raw .. now_raw .. ZERO8 .. struct.pack('>I8', expire)
  local ids, set, lined = {}, p.set, p.lined
  local latest = expire > 0 and expire or NEVER
  local is_early, sub, byte = latest < p.latest, string.sub, string.byte
  for i = 1, count do
    local rest, id = ARGV[from + i - 1], nil
    if p.digit < 61 and p.second >= this_second then
      local digit = p.digit + 1
      p.digit = digit
      id = p.run .. sub(DIGITS, digit + 1, digit + 1)
    else
      id = next_id(p)
    end
    local priority = byte(rest, 5)
    ids[i] = id
    set[2 * i - 1], set[2 * i] = id, head .. rest
    lined[2 * i - 1], lined[2 * i] = sub(LANES, priority + 1, priority + 1), id
  end
  if is_early then
    local early, at = {}, whole(expire)
    for i = 1, count do
      early[2 * i - 1], early[2 * i] = at, ids[i]
    end
    each('ZADD', p.early, early)
  end
  if count > 0 then
    p.latest = math.max(p.latest, latest)
    by_when(p, latest)
    p.rose = true
  end
  count_created(p, now, count)
  return ids
end

-- An item with its own instants (8 bytes each: created, enqueue, expire), key, source or reference. Answers with its id.
local function put_one(p, instants, rest, how)
  if how.dedupe > 0 and not p.has_forgotten then
    p.has_forgotten = true
    forget_seen(p, 1000)
  end
  local created, enqueue, expire = string.sub(instants, 1, 8), string.sub(instants, 9, 16), string.sub(instants, 17, 24)
  if created == ZERO8 then
    created = now_raw
  end
  local at = number_at(enqueue, 1)
  if at < now + SOON then
    at, enqueue = 0, ZERO8
  end
  if expire == ZERO8 and how.expire_after > 0 then
    expire = struct.pack('>I8', (at > 0 and at or now) + how.expire_after)
  end
  local tail = '-' .. created .. now_raw .. enqueue .. expire .. rest
  local item = (at > 0 and 's' or 'r') .. tail
  if is_known(p, item, how.dedupe) then
    return ''
  end
  local id, key = next_id(p), how.is_ordered and key_of(item) or ''
  if key ~= '' and redis.call('HSETNX', p.keys, key, 1) == 0 then
    redis.call('ZADD', p.lines, 0, line_of(key) .. id)
    redis.call('ZADD', p.behind, 0, id)
    item = 'b' .. tail
    count_created(p, number_at(created, 1), 1)
  elseif at > 0 then
    set_aside(p, id, item)
  else
    count_created(p, number_at(created, 1), 1)
    line_up(p, id, item)
  end
  keep(p, id, item)
  return id
end

-- The partition with the fewest ready; of equals, the first.
local function roomiest(partitions)
  local best, fewest = partitions[1], nil
  if #partitions > 1 then
    for _, p in ipairs(partitions) do
      local ready = redis.call('ZCARD', p.ready)
      if not fewest or ready < fewest then
        best, fewest = p, ready
      end
    end
  end
  return best
end

-- The partition that is named after the instants; none: the roomiest. Nil when it was removed.
local function partition_for(root, instants, room)
  local number = string.sub(instants, 25)
  if number == '' then
    return room
  end
  return opened(root, number)
end
