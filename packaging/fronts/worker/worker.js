// A Cloudflare Worker in front of neve and a full node: neve answers what it holds, the node the rest.
//
// wrangler.toml, beside this file, has the two addresses as variables. packaging/fronts/test runs this
// very file in workerd, through miniflare.
//
// Several neves: their addresses in NEVE, with spaces between. They do not get a head at the same moment:
// the address of a client chooses its neve, for calls and for WebSockets, so its head never goes back. A
// Worker has no health checks. It asks the next neve when one does not answer, each time anew, and goes
// back once the client's own answers again.
//
// neve: --stale-heads miss. Requests of Workers come from addresses of Cloudflare that other people's
// Workers have too: name none of them in --trusted-proxies, and let the two servers take connections
// through a tunnel only.

// Add the paths of --rpc-paths here. All others are closed: /health, /metrics, /mirror/, and the node's.
const CALLS = ["/", "/ext/bc/C/rpc", "/ext/bc/evm/rpc"];
const SOCKETS = ["/", "/ws", "/ext/bc/C/ws", "/ext/bc/evm/ws"];
const MISS = 421;
// neve stopped, full or stuck.
const LOST = [502, 503, 504, 521, 522, 523, 524];
// The limit of the node and of neve on bodies.
const BODY_MAX = 5 * 1024 * 1024;
// neve says within microseconds what it has: one that does not is stuck.
const NEVE_MS = 10_000;
// eth_call and the like may take the node's own 30 s.
const NODE_MS = 40_000;

export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    const path = url.pathname;
    const upgrade = (request.headers.get("Upgrade") ?? "").toLowerCase() === "websocket";
    if (upgrade && SOCKETS.includes(path)) return socket(request, env);
    if (CALLS.includes(path)) return call(request, env);
    // Paths that only neve has: its misses stay misses.
    if (path.startsWith("/v1/") || path === "/ready") return documents(request, env, path + url.search);
    return new Response("404 page not found\n", { status: 404 });
  },
};

// What both servers are told. A client's own claims end here.
function told(request) {
  const headers = new Headers(request.headers);
  for (const name of ["Forwarded", "X-Real-IP", "Avalanche-Api-Route", "Host"]) headers.delete(name);
  // Cloudflare sets CF-Connecting-IP, and no client can.
  headers.set("X-Forwarded-For", request.headers.get("CF-Connecting-IP") ?? "");
  return headers;
}

async function call(request, env) {
  // Kept, so that a missed request can be sent once more.
  const body = request.body ? await request.arrayBuffer() : undefined;
  if (body && body.byteLength > BODY_MAX) return new Response("content length too large\n", { status: 413 });
  const ask = (base, milliseconds) =>
    answer(base + "/ext/bc/C/rpc", { method: request.method, headers: told(request), body }, milliseconds);
  const served = await firstOf(neves(request, env), (base) => ask(base, NEVE_MS));
  // What one neve misses, the others hardly have.
  if (served && served.status !== MISS && !LOST.includes(served.status)) return served;
  await served?.body?.cancel();
  return (await ask(env.NODE, NODE_MS)) ?? nobody();
}

// Calls and WebSockets go to the same side: a client that hears of a head by one asks for it by the
// other. Over a WebSocket a miss is an error.
async function socket(request, env) {
  for (const base of [...neves(request, env), env.NODE]) {
    const opened = await answer(base + "/ext/bc/C/ws", { headers: told(request) }, NEVE_MS);
    if (opened?.status === 101) return opened;
  }
  return nobody();
}

async function documents(request, env, path) {
  const options = { method: request.method, headers: told(request) };
  return (await firstOf(neves(request, env), (base) => answer(base + path, options, NEVE_MS))) ?? nobody();
}

// The neves, and first the one of the client.
function neves(request, env) {
  const all = env.NEVE.split(/\s+/);
  const client = request.headers.get("CF-Connecting-IP") ?? "";
  // FNV-1a: any even spread that each Worker finds alike.
  const mix = (sum, char) => Math.imul(sum ^ char.charCodeAt(0), 0x01000193) >>> 0;
  const first = [...client].reduce(mix, 0x811c9dc5) % all.length;
  return [...all.slice(first), ...all.slice(0, first)];
}

// The first response of a server that works, else the last one.
async function firstOf(bases, ask) {
  let response;
  for (const base of bases) {
    await response?.body?.cancel();
    response = await ask(base);
    if (response && !LOST.includes(response.status)) break;
  }
  return response;
}

// The response, or nothing if there is none in time. The time ends with the headers.
async function answer(url, options, milliseconds) {
  const timeout = new AbortController();
  const timer = setTimeout(() => timeout.abort(), milliseconds);
  try {
    return await fetch(url, { ...options, redirect: "manual", signal: timeout.signal });
  } catch {
    return undefined;
  } finally {
    clearTimeout(timer);
  }
}

function nobody() {
  const error = { code: -32603, message: "no node answers now; try again later" };
  return Response.json({ jsonrpc: "2.0", id: null, error }, { status: 503 });
}
