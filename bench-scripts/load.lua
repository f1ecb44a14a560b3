-- Requests from a file, one body a line, at random. Arguments: FILE SEED [NAME=VALUE ...] (headers).
-- Bodies are formatted before the load begins, so that the generator is as cheap as it can be.
local requests = {}

function init(args)
  local headers = { ["Content-Type"] = "application/json" }
  for at = 3, #args do
    local name, value = args[at]:match("^([^=]+)=(.*)$")
    headers[name] = value
  end
  for line in io.lines(args[1]) do
    requests[#requests + 1] = wrk.format("POST", nil, headers, line)
  end
  math.randomseed(tonumber(args[2]))
end

function request()
  return requests[math.random(#requests)]
end

-- The share of latencies of at most so many microseconds, in percent, as close as halving finds it.
local function at_most(latency, us)
  local low, high = 0, 100
  for _ = 1, 20 do
    local middle = (low + high) / 2
    if latency:percentile(middle) <= us then low = middle else high = middle end
  end
  return low
end

-- What wrk prints is rounded. Its percentiles and mean are corrected for what it takes for
-- coordinated omission before a script sees them; counts, bytes and duration are as they were.
function done(summary, latency, _)
  local e = summary.errors
  io.write(string.format(
    'JSON {"requests":%d,"bytes":%d,"duration_us":%d,"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d,'
    .. '"mean_us":%.1f,"stdev_us":%.1f,"within_sd":%.2f,"max_us":%d,"p50_us":%d,"p75_us":%d,"p90_us":%d,"p99_us":%d,"p99_9_us":%d}\n',
    summary.requests, summary.bytes, summary.duration, e.connect, e.read, e.write, e.status, e.timeout,
    latency.mean, latency.stdev,
    at_most(latency, latency.mean + latency.stdev) - at_most(latency, latency.mean - latency.stdev), latency.max, latency:percentile(50), latency:percentile(75),
    latency:percentile(90), latency:percentile(99), latency:percentile(99.9)))
end
