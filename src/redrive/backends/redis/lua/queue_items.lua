-- List items in some places by id. ARGV: 5 places (r, l, s, b, d), 6 pivot, 7 limit. Answers with id, item and lease of each.
-- Leased and dying are in no order of ids: all of their ids are read, never their items. They are few where there is a backlog.
local p = opened(ARGV[1], ARGV[4])
if not p then
  return { GONE }
end
local places, pivot, limit = ARGV[5], ARGV[6], tonumber(ARGV[7])
local lists = {}

local function sorted(key)
  if redis.call('EXISTS', key) == 0 then
    return
  end
  local all, list = redis.pcall('ZUNION', 1, key, 'WEIGHTS', 0), {}
  if all.err then -- before Redis 6.2
    all = redis.call('ZRANGE', key, 0, -1)
    table.sort(all, before)
  end
  local from = first_from(pivot, #all, function(i)
    return all[i + 1]
  end)
  for i = from + 1, math.min(from + limit, #all) do
    list[#list + 1] = all[i]
  end
  lists[#lists + 1] = list
end

local function by_id(key)
  lists[#lists + 1] = redis.call('ZRANGEBYLEX', key, '[' .. pivot, '+', 'LIMIT', 0, limit)
end

local function ready()
  local start = 0
  for lane = 0, 9 do
    local count = redis.call('ZCOUNT', p.ready, lane, lane)
    if count > 0 then
      local from = start + first_from(pivot, count, function(i)
        return redis.call('ZRANGE', p.ready, start + i, start + i)[1]
      end)
      local last = math.min(from + limit, start + count) - 1
      if last >= from then
        lists[#lists + 1] = redis.call('ZRANGE', p.ready, from, last)
      end
      start = start + count
    end
  end
end

if limit > 0 then
  for place in string.gmatch(places, '.') do
    if place == 'r' then
      ready()
    elseif place == 'l' then
      sorted(p.ends)
    elseif place == 'd' then
      sorted(p.dying)
    else
      by_id(place == 's' and p.scheduled or p.behind)
    end
  end
end

-- The lowest of all lists, again and again.
local ids, at = {}, {}
while #ids < limit do
  local best
  for n, list in ipairs(lists) do
    local id = list[at[n] or 1]
    if id and (not best or before(id, lists[best][at[best] or 1])) then
      best = n
    end
  end
  if not best then
    break
  end
  ids[#ids + 1] = lists[best][at[best] or 1]
  at[best] = (at[best] or 1) + 1
end

local items, leases, answer = lookup(p.items, ids), lookup(p.leased, ids), { OK }
for i, id in ipairs(ids) do
  answer[3 * i - 1], answer[3 * i], answer[3 * i + 1] = id, items[i], leases[i] or ''
end
return answer
