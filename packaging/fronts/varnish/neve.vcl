# Varnish 6 or 7 in front of neve and a full node: keeps the documents under /v1/, passes calls on to
# neve, and asks the node what neve misses.
#
#   varnishd -a :8080 -f /etc/varnish/neve.vcl -s malloc,4G
#
# neve: --trusted-proxies 127.0.0.1 --stale-heads miss
#
# One neve, or several that follow the same chain: an address under /v1/ names a block of one chain
# only. When the node begins to answer by the rules of Helicon, once in a chain's life, run
#
#   varnishadm 'ban obj.http.x-path ~ ^/v1/(block|header)/'
#
# packaging/fronts/test and tests/it/rest/varnish.rs run this very file.

vcl 4.1;

import std;

# For documents while neve is not ready: neve alone has them.
backend neve {
    .host = "127.0.0.1";
    .port = "8545";
    .connect_timeout = 1s;
    # neve says within microseconds what it has: one that does not is stuck.
    .first_byte_timeout = 10s;
}

# For calls and sockets, which go to the node while neve is not ready.
#
# Several neves: several.vcl, beside this file, has parts in the place of this backend and of the
# subroutine below.
backend neve_ready {
    .host = "127.0.0.1";
    .port = "8545";
    .connect_timeout = 1s;
    .first_byte_timeout = 10s;
    .probe = {
        .url = "/ready";
        .interval = 1s;
        .timeout = 1s;
        .window = 3;
        .threshold = 2;
        .initial = 2;
    }
}

sub neve_of_client {
    set req.backend_hint = neve_ready;
}

backend node {
    .host = "127.0.0.1";
    .port = "9650";
    .connect_timeout = 2s;
    # eth_call and the like may take the node's own 30 s.
    .first_byte_timeout = 40s;
}

sub node_if_none_is_ready {
    if (!std.healthy(req.backend_hint)) {
        set req.backend_hint = node;
    }
}

sub vcl_recv {
    # A client's own claims end here. neve counts shares by client if it runs with --trusted-proxies.
    set req.http.X-Forwarded-For = client.ip;
    unset req.http.Forwarded;
    # With this header the node leaves the path aside and picks another API.
    unset req.http.Avalanche-Api-Route;

    # Calls and WebSockets go to the same side: a client that hears of a head by one asks for it by the
    # other. The node has JSON-RPC at its own paths only; neve has it there too.
    call neve_of_client;
    if (req.http.Upgrade ~ "(?i)^websocket$" && req.url ~ "^/(ws|ext/bc/(C|evm)/ws)?$") {
        call node_if_none_is_ready;
        set req.url = "/ext/bc/C/ws";
        # The node refuses names that it does not know (its http-allowed-hosts).
        set req.http.Host = "localhost";
        return (pipe);
    }
    # Add the paths of --rpc-paths here.
    if (req.url ~ "^/(ext/bc/(C|evm)/rpc)?$") {
        call node_if_none_is_ready;
        set req.url = "/ext/bc/C/rpc";
        set req.http.Host = "localhost";
        # Kept, so that a missed request can be sent once more: the limit of the node and of neve.
        if (req.method == "POST" && !std.cache_req_body(5MB)) {
            return (synth(413));
        }
        return (pass);
    }

    # Paths that only neve has: its misses stay misses. All others are closed: /health, /metrics,
    # /mirror/, and the node's.
    if (!std.healthy(req.backend_hint)) {
        set req.backend_hint = neve;
    }
    if (req.url == "/ready") {
        return (pass);
    }
    if (req.url !~ "^/v1/" || req.url ~ "[.][.]|//") {
        return (synth(404));
    }
    # A page of any origin gets the same, so that one copy is enough. What a browser must see
    # is added on the way out. It asks first only for what /v1/ does not need.
    unset req.http.x-origin;
    if (req.method == "GET" || req.method == "HEAD") {
        if (req.http.Origin) {
            set req.http.x-origin = req.http.Origin;
            unset req.http.Origin;
        }
        # Nothing under /v1/ depends on who asks.
        unset req.http.Cookie;
        unset req.http.Authorization;
        return (hash);
    }
    return (pass);
}

sub vcl_pipe {
    if (req.http.Upgrade) {
        set bereq.http.Upgrade = req.http.Upgrade;
        set bereq.http.Connection = req.http.Connection;
    }
}

# A request that neve missed, or did not take, goes to the node, once.
sub vcl_backend_fetch {
    if (bereq.retries == 1) {
        set bereq.backend = node;
    }
}

sub vcl_backend_error {
    if (bereq.retries == 0 && bereq.backend != node && bereq.url == "/ext/bc/C/rpc") {
        return (retry);
    }
    set beresp.status = 503;
    set beresp.http.Content-Type = "application/json";
    set beresp.body = {"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"no node answers now; try again later" } }"};
    return (deliver);
}

sub vcl_backend_response {
    if (bereq.retries == 0 && bereq.backend != node && bereq.url == "/ext/bc/C/rpc" && (beresp.status == 421 || (beresp.status >= 502 && beresp.status <= 504))) {
        return (retry);
    }
    if (bereq.uncacheable || bereq.url !~ "^/v1/") {
        return (deliver);
    }
    set beresp.http.x-path = bereq.url;
    if (beresp.http.Cache-Control ~ "must-revalidate") {
        # Of a height that no header has settled. Nothing is given out behind its time: it may
        # have been withdrawn. Until then only its tag is asked about.
        set beresp.grace = 0s;
        set beresp.keep = 1m;
    }
    if (beresp.was_304) {
        set beresp.http.x-revalidated = "yes";
    } else {
        unset beresp.http.x-revalidated;
    }
    # What remains is Varnish's own: no-cache and no-store are not kept, max-age is.
}

sub vcl_deliver {
    if (obj.hits > 0) {
        set resp.http.X-Cache = "HIT";
    } else if (resp.http.x-revalidated) {
        set resp.http.X-Cache = "REVALIDATED";
    } else {
        set resp.http.X-Cache = "MISS";
    }
    unset resp.http.x-revalidated;
    unset resp.http.x-path;
    if (req.http.x-origin) {
        set resp.http.Access-Control-Allow-Origin = "*";
        set resp.http.Access-Control-Allow-Credentials = "true";
    }
}
