-- Ids in their order.

-- Lua's own < goes by the locale of the server; this goes by bytes.
local function before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

-- The number of the first that does not come before the pivot; `at` gives each by its number, from 0.
local function first_from(pivot, count, at)
  local low, high = 0, count
  while low < high do
    local middle = math.floor((low + high) / 2)
    if before(at(middle), pivot) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end
