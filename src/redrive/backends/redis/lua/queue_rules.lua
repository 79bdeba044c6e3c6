-- What becomes of items: keys that move up, items that are given up on, leases that are let go.

local function line_of(key)
  return struct.pack('>I4', #key) .. key
end

local function has_keys(p)
  if p.has_keys == nil then
    p.has_keys = redis.call('EXISTS', p.keys) == 1
  end
  return p.has_keys
end

-- The next of the key may go.
local function release(p, key)
  if key == '' or not has_keys(p) or redis.call('HEXISTS', p.keys, key) == 0 then
    return
  end
  local line = line_of(key)
  local member = redis.call('ZRANGEBYLEX', p.lines, '[' .. line, '(' .. line .. '\255', 'LIMIT', 0, 1)[1]
  if not member then
    redis.call('HDEL', p.keys, key)
    return
  end
  local id = string.sub(member, #line + 1)
  local item = redis.call('HGET', p.items, id)
  redis.call('ZREM', p.lines, member)
  redis.call('ZREM', p.behind, id)
  if number_at(item, 19) >= now + SOON then
    postpone(p, id, item, attempts_of(item))
  else
    renew(p, id, item, attempts_of(item))
  end
end

-- It is dying from now on, and keeps its id.
local function give_up(p, id, item, why, attempts, told)
  keep(p, id, changed(item, 'd', why, nil, attempts, '', told))
  p.deaths = p.deaths + 1
  p.dead[#p.dead + 1] = whole(p.deaths)
  p.dead[#p.dead + 1] = id
  release(p, key_of(item))
end

-- Those of the ids that are leased now, side by side with their leases; or why not.
local function held(p, ids)
  local leases = lookup(p.leased, ids)
  for i = 1, #ids do
    local lease = leases[i]
    if not lease then
      return nil, { redis.call('HEXISTS', p.items, ids[i]) == 1 and NOT_LEASED or NO_SUCH, ids[i] }
    elseif number_at(lease, 1) <= now then
      return nil, { NOT_LEASED, ids[i] }
    end
  end
  return leases
end

-- It is leased no more.
local function let_go(p, id, lease)
  p.freed[#p.freed + 1] = id
  count_leased(p, number_at(lease, 9), -1)
end

-- It is nowhere any more.
local function forget(p, id, created, source)
  p.del[#p.del + 1] = id
  p.shrank = true
  count_created(p, created, -1)
  if source ~= '' then
    redis.call('SREM', p.sources, source)
  end
end

local function is_expired(item, expires)
  if not expires then
    return false
  end
  local expire = number_at(item, 27)
  return expire > 0 and expire <= now
end

local function is_spent(attempts, most)
  return most > 0 and attempts > most
end

-- Delete items, wherever they are. Those that others stand behind go last, so that nobody moves up only to be deleted as well.
local function remove(p, ids)
  local items, leases, has_early = lookup(p.items, ids), lookup(p.leased, ids), redis.call('EXISTS', p.early) == 1
  local gone = { r = {}, s = {}, d = {}, b = {} }
  for i = 1, #ids do
    local item = items[i]
    local place = string.sub(item, 1, 1)
    if leases[i] then
      let_go(p, ids[i], leases[i])
    else
      table.insert(gone[place], ids[i])
    end
    if place == 'b' then
      redis.call('ZREM', p.lines, line_of(key_of(item)) .. ids[i])
    end
    if place == 's' then
      count_created(p, number_at(item, 3), 1)
    end
    forget(p, ids[i], number_at(item, 3), source_of(item))
  end
  each('ZREM', p.ready, gone.r)
  if has_early then
    each('ZREM', p.early, gone.r)
  end
  each('ZREM', p.schedule, gone.s)
  each('ZREM', p.scheduled, gone.s)
  p.is_grave = p.is_grave or #gone.d > 0
  each('ZREM', p.dying, gone.d)
  each('ZREM', p.behind, gone.b)
  for i = 1, #ids do
    local place = string.sub(items[i], 1, 1)
    if place == 'r' or place == 's' then
      release(p, key_of(items[i]))
    end
  end
end
