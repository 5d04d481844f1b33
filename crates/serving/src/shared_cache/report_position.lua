-- Reports the position of a router, and returns those of all routers that have reported theirs lately.
--
-- KEYS: the state of the log, its messages, its routers. ARGV: the name of the caller, its epoch and number (`gone` and
-- 0 if it leaves), the time in milliseconds after which a router without reports counts as gone, the time for which the
-- log is kept. Returns the epoch, the number of the last message (-1 if it is damaged), and the name and number of each
-- router (-1 if it is in another epoch, -2 if it has left).
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[3], ARGV[1], string.format('%s:%s:%.0f', ARGV[2], ARGV[3], now))
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[5]) end

local epoch = redis.call('HGET', KEYS[1], 'epoch') or ''
local result = {epoch, tonumber(redis.call('HGET', KEYS[1], 'number') or '') or -1}
local routers = redis.call('HGETALL', KEYS[3])
for index = 1, #routers, 2 do
  local known, number, at = string.match(routers[index + 1], '^(%w+):(%d+):(%d+)$')
  if not at or math.abs(now - tonumber(at)) > tonumber(ARGV[4]) then
    redis.call('HDEL', KEYS[3], routers[index])
  else
    result[#result + 1] = routers[index]
    result[#result + 1] = known == 'gone' and -2 or known == epoch and tonumber(number) or -1
  end
end
return result
