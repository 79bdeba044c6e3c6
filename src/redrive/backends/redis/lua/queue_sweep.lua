-- Do what is due. ARGV: 5 limit, 6 most attempts, 7 whether items expire.
-- Answers with how many are ready, how many dying, and whether all is done.
local partitions = all_opened(ARGV[1], ARGV[4])
if not partitions then
  return { GONE }
end
local limit, most, expires = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local ready, dying, is_done = 0, 0, 1
local CHUNK = 250

local function due(key, wanted, most_at_once)
  if wanted <= 0 then
    return {}
  end
  return redis.call('ZRANGEBYSCORE', key, '-inf', whole(now), 'LIMIT', 0, math.min(wanted, most_at_once or CHUNK))
end

local function end_leases(p, left)
  local ids = due(p.ends, left)
  while #ids > 0 do
    local items, leases = lookup(p.items, ids), lookup(p.leased, ids)
    for i, id in ipairs(ids) do
      local item = items[i]
      local attempts = attempts_of(item) + 1
      let_go(p, id, leases[i])
      if is_spent(attempts, most) or is_expired(item, expires) then
        give_up(p, id, item, is_spent(attempts, most) and 'a' or 'e', attempts)
        dying = dying + 1
      else
        renew(p, id, item, attempts)
        ready = ready + 1
      end
    end
    flush(p)
    left = left - #ids
    ids = due(p.ends, left)
  end
  return left
end

local function end_schedules(p, left)
  -- Who is given up on lets the next of its key go, to the schedule perhaps.
  local at_once = has_keys(p) and 1 or CHUNK
  local ids = due(p.schedule, left, at_once)
  while #ids > 0 do
    each('ZREM', p.schedule, ids)
    for i, item in ipairs(lookup(p.items, ids)) do
      local id = ids[i]
      if is_expired(item, expires) then
        redis.call('ZREM', p.scheduled, id)
        count_created(p, number_at(item, 3), 1)
        give_up(p, id, item, 'e', attempts_of(item))
        dying = dying + 1
      elseif number_at(item, 19) > now then
        -- Its time to expire has passed, but nothing expires here.
        redis.call('ZADD', p.schedule, whole(number_at(item, 19)), id)
      else
        redis.call('ZREM', p.scheduled, id)
        count_created(p, number_at(item, 3), 1)
        renew(p, id, item, attempts_of(item))
        ready = ready + 1
      end
    end
    flush(p)
    left = left - #ids
    ids = due(p.schedule, left, at_once)
  end
  return left
end

-- Ready items past their time: those that expire out of turn, then those at the head of each priority.
local function expired(p, left)
  local found, is_found = {}, {}
  while #found < left do
    local ids = redis.call('ZRANGEBYSCORE', p.early, '-inf', whole(now), 'LIMIT', #found, math.min(left - #found, CHUNK))
    if #ids == 0 then
      break
    end
    for _, id in ipairs(ids) do
      found[#found + 1] = id
      is_found[id] = true
    end
  end
  for lane = 0, 9 do
    local from, size, is_over = 0, 1, false
    while #found < left and not is_over do
      local ids = redis.call('ZRANGEBYSCORE', p.ready, lane, lane, 'LIMIT', from, size)
      is_over = #ids < size
      for i, item in ipairs(lookup(p.items, ids)) do
        if not is_found[ids[i]] then
          if not is_expired(item, true) or #found >= left then
            is_over = true
            break
          end
          found[#found + 1] = ids[i]
        end
      end
      from, size = from + #ids, CHUNK
    end
  end
  return found
end

-- Who stood behind an expired one may have expired meanwhile, too.
local function end_waits(p, left)
  while left > 0 do
    local ids = expired(p, left)
    if #ids == 0 then
      break
    end
    each('ZREM', p.ready, ids)
    each('ZREM', p.early, ids)
    for i, item in ipairs(lookup(p.items, ids)) do
      give_up(p, ids[i], item, 'e', attempts_of(item))
    end
    flush(p)
    dying = dying + #ids
    left = left - #ids
  end
  return left
end

local function first_score(key)
  return tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or NEVER)
end

local function next_due(p)
  local soonest = math.min(first_score(p.ends), first_score(p.schedule))
  if not expires then
    return soonest
  end
  soonest = math.min(soonest, first_score(p.early))
  for lane = 0, 9 do
    local id = redis.call('ZRANGEBYSCORE', p.ready, lane, lane, 'LIMIT', 0, 1)[1]
    local expire = id and number_at(redis.call('HGET', p.items, id), 27) or 0
    if expire > 0 and expire < soonest then
      soonest = expire
    end
  end
  return soonest
end

for _, p in ipairs(partitions) do
  local left = end_schedules(p, end_leases(p, limit - ready - dying))
  if expires then
    left = end_waits(p, left)
  end
  forget_seen(p, 10000)
  p.due = next_due(p)
  save(p)
  if left <= 0 then
    is_done = 0
  end
end
return { OK, ready, dying, is_done }
