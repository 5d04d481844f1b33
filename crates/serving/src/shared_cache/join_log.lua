-- Joins the log of invalidations. A log that is missing, damaged or older than the caller begins again, with a new
-- epoch.
--
-- KEYS: the state of the log, its messages, its routers. ARGV: an epoch for a new log, the epoch and the number that the
-- caller knows (empty and 0 if none), the largest valid number, the time in milliseconds for which the log is kept.
-- Returns the epoch, the number of the last message, and that of the first one that the log still has.
local function reset_other_types(key, expected)
  local found = redis.call('TYPE', key).ok
  if found ~= expected and found ~= 'none' then redis.call('DEL', key) end
end
reset_other_types(KEYS[1], 'hash')
reset_other_types(KEYS[2], 'stream')
reset_other_types(KEYS[3], 'hash')

local epoch = redis.call('HGET', KEYS[1], 'epoch')
local number = tonumber(redis.call('HGET', KEYS[1], 'number') or '')
local is_damaged = not epoch or not number or number < 0 or number > tonumber(ARGV[4])
if is_damaged or (epoch == ARGV[2] and number < tonumber(ARGV[3])) then
  epoch, number = ARGV[1], 0
  redis.call('DEL', KEYS[2])
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'number', '0')
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[5]) end

local first = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
local oldest = first and tonumber(string.match(first[1], '^(%d+)-')) or number + 1
return {epoch, number, oldest}
