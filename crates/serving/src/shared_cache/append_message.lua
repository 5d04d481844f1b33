-- Appends a message to the log of invalidations, under the next number.
--
-- KEYS: the state of the log, its messages. ARGV: the epoch that the caller knows, the name of the caller, the message,
-- the number of messages to keep. Returns the number; 0 if the log has another epoch.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
local number = redis.call('HINCRBY', KEYS[1], 'number', 1)
local id = string.format('%.0f-0', number)
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[4], id, 'router', ARGV[2], 'message', ARGV[3])
return number
