local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local full_at = {}
for i, key in ipairs(KEYS) do
  local interval = tonumber(ARGV[3 * i - 2])
  local window = tonumber(ARGV[3 * i - 1])
  local weight = tonumber(ARGV[3 * i])
  -- A value of another type is an error here, which is no number.
  local stored = redis.pcall('GET', key)
  local time = type(stored) == 'string' and tonumber(stored) or now
  -- Foreign numbers and clocks that went back: the key starts again, and no number is out of reach.
  if not (time >= now) then time = now end
  if time > now + window then time = now + window end
  local next = time + interval * weight
  if next > now + window then
    return {i, math.floor((now + window - time) / interval), next - now - window}
  end
  full_at[i] = next
end
for i, key in ipairs(KEYS) do
  if full_at[i] > now then
    redis.call('SET', key, string.format('%.0f', full_at[i]), 'PX', math.ceil((full_at[i] - now) / 1000))
  else
    redis.call('DEL', key)
  end
end
return {0}
