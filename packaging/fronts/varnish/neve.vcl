# Varnish 6 or 7 in front of neve: keeps the documents under /v1/, passes everything else on.
#
#   varnishd -a :8080 -f /etc/varnish/neve.vcl -s malloc,4G
#
# One neve, or several that follow the same chain: an address under /v1/ names a block of one chain
# only. When the node begins to answer by the rules of Helicon, once in a chain's life, run
#
#   varnishadm 'ban obj.http.x-path ~ ^/v1/(block|header)/'

vcl 4.1;

backend neve {
    .host = "127.0.0.1";
    .port = "8545";
}

sub vcl_recv {
    # For operators and mirrors on the inside. /ready stays: it is what a balancer asks.
    if (req.url ~ "^/(health|metrics)([?]|$)|^/mirror/") {
        return (synth(404));
    }
    if (req.http.Upgrade ~ "(?i)websocket") {
        return (pipe);
    }
    if (req.url !~ "^/v1/") {
        return (pass);
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

sub vcl_backend_response {
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
