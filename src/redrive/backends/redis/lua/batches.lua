-- Many values at once; put in front of all scripts, of letters and of queues.

local MOST = 4000 -- values that Lua can unpack at once: its stack holds some 8000

local function lookup(key, fields)
  if #fields == 0 then
    return {}
  end
  if #fields <= MOST then
    return redis.call('HMGET', key, unpack(fields))
  end
  local list = {}
  for from = 1, #fields, MOST do
    local part = redis.call('HMGET', key, unpack(fields, from, math.min(from + MOST - 1, #fields)))
    for i = 1, #part do
      list[from + i - 1] = part[i]
    end
  end
  return list
end

-- The verb once for as many values as it takes; nothing without values.
local function each(verb, key, list, from, to)
  for start = from or 1, to or #list, MOST do
    redis.call(verb, key, unpack(list, start, math.min(start + MOST - 1, to or #list)))
  end
end
