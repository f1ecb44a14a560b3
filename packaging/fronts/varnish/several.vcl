# Several neves behind one Varnish: these in the place of `backend neve_ready` and `sub neve_of_client` of
# neve.vcl.
#
# Neves do not get a head at the same moment. The address of a client chooses its neve, for calls and
# for WebSockets, so its head never goes back. A client changes over only while its neve is not ready;
# one neve more or less moves few clients. Behind another proxy take the address that it names for
# `client.ip`.

import directors;

probe ready {
    .url = "/ready";
    .interval = 1s;
    .timeout = 1s;
    .window = 3;
    .threshold = 2;
    .initial = 2;
}

backend neve_first {
    .host = "127.0.0.1";
    .port = "8545";
    .connect_timeout = 1s;
    .first_byte_timeout = 10s;
    .probe = ready;
}

backend neve_second {
    .host = "127.0.0.1";
    .port = "8546";
    .connect_timeout = 1s;
    .first_byte_timeout = 10s;
    .probe = ready;
}

sub vcl_init {
    new neves = directors.shard();
    neves.add_backend(neve_first);
    neves.add_backend(neve_second);
    neves.reconfigure();
}

# None, if none is ready.
sub neve_of_client {
    set req.backend_hint = neves.backend(by = KEY, key = neves.key(client.ip));
}
