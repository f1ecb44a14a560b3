"""Drills of odd clients and outputs: heads that are cut or malformed, a standard output that nobody empties."""

import fcntl
import os
import re
import socket
import time

from .drilled import gain, head_of, is_served
from .lying_drills import again
from .process import end

BODY = b'{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}'
LINES = [b"POST / HTTP/1.1", b"Host: x", b"Content-Type: application/json", b"Content-Length: %d" % len(BODY)]
WAIT_S, LEFT_S, FULL_S, END_S = 3, 2, 10, 10
PIPE_BYTES = 1 << 12


def request(*lines, end=b"\r\n", body=BODY):
    return end.join([*lines, b"", b""]) + body


def with_line(*more):
    return request(*LINES, *more)


FIRST, HOST, TYPE, LENGTH = LINES
CHUNKED = b"Transfer-Encoding: chunked"
PIECE = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
FORMS = {
    "bare LF": request(*LINES, end=b"\n"),
    "bare CR in a value": with_line(b"X: a\rb"),
    "NUL in a value": with_line(b"X: a\0b"),
    "two Host lines": with_line(b"Host: y"),
    "no Host line": request(FIRST, TYPE, LENGTH),
    "Content-Length twice, equal": with_line(LENGTH),
    "Content-Length twice, different": with_line(b"Content-Length: 5"),
    "Content-Length as a list": request(FIRST, HOST, TYPE, LENGTH + b", 5"),
    "Content-Length with a plus": request(FIRST, HOST, TYPE, b"Content-Length: +%d" % len(BODY)),
    "Content-Length below zero": request(FIRST, HOST, TYPE, b"Content-Length: -1"),
    "Content-Length of 2^64": request(FIRST, HOST, TYPE, b"Content-Length: 18446744073709551616"),
    "Content-Length and chunked": request(*LINES, CHUNKED, body=PIECE),
    "unknown transfer coding": request(FIRST, HOST, TYPE, b"Transfer-Encoding: xchunked", body=PIECE),
    "chunk size that is no number": request(FIRST, HOST, TYPE, CHUNKED, body=b"zz\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "obs-fold": with_line(b"X: a", b" b"),
    "space before the colon": with_line(b"X : a"),
    "a line without a colon": with_line(b"nothing"),
    "an empty name": with_line(b": a"),
    "a space before the first header": request(FIRST, b" X: a", *LINES[1:]),
    "1,000 headers": with_line(*(b"X-%d: a" % at for at in range(1000))),
    "a head of 300 kB": with_line(b"X: " + b"a" * 300_000),
    "HTTP/3.0": request(b"POST / HTTP/3.0", *LINES[1:]),
    "no version": request(b"POST /", *LINES[1:]),
    "two spaces in the first line": request(b"POST  /  HTTP/1.1", *LINES[1:]),
    "a method in lower case": request(b"post / HTTP/1.1", *LINES[1:]),
}


def connected(server):
    host, port = server.address.split(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_S)


def answers(one):
    """What each response says, until the connection is closed, or nothing comes; and which of both it was."""
    data = b""
    try:
        while piece := one.recv(1 << 16):
            data += piece
        how = "closed"
    except TimeoutError:
        how = "open"
    except OSError:
        how = "reset"
    return [*said(data), how]


def said(data):
    """Status of each response, and the code of a JSON-RPC error in its body."""
    for status, rest in re.findall(rb"HTTP/1\.[01] (\d{3})(.*?)(?=HTTP/1\.|\Z)", data, re.DOTALL):
        code = re.search(rb'"error":\s*{"code":\s*(-\d+)', rest)
        yield (status + b" " + code[1] if code else status).decode()


def malformed_heads(start, directory, upstream):
    """Each form, with a good request behind it in the same bytes."""
    server, result = start(directory, upstream), {}
    for name, data in FORMS.items():
        result[name] = ", ".join(answered(server, data + request(*LINES), ends=False))
    result |= {"alive": server.process.poll() is None, "served": is_served(server)}
    server.stop()
    return result


def cut_heads(start, directory, upstream):
    """A request that ends after each of its bytes: closed for writing there, or gone on with after a while."""
    server, whole = start(directory, upstream), request(*LINES)
    cuts = range(1, len(whole))
    closed = [answered(server, whole[:at]) for at in cuts]
    open_ones = [begun(server, whole[:at]) for at in cuts]
    time.sleep(LEFT_S)
    result = {"cuts": len(cuts), "served meanwhile": is_served(server)}
    later = [finished(one, whole[at:]) for at, one in zip(cuts, open_ones)]
    counted = {"closed": count(closed), "gone on with": count(later)}
    result |= counted | {"alive": server.process.poll() is None, "served": is_served(server)}
    server.stop()
    return result


def begun(server, data):
    """A connection with these bytes sent, as far as the server takes them, or why there is none."""
    try:
        one = connected(server)
    except OSError as why:
        return type(why).__name__
    try:
        one.sendall(data)
    except OSError:
        pass
    return one


def answered(server, data, ends=True):
    one = begun(server, data)
    if isinstance(one, str):
        return [one]
    with one:
        try:
            if ends:
                one.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the server has reset it, and what it said before can be read
        return answers(one)


def finished(one, rest):
    """The first response is enough: the connection stays open."""
    if isinstance(one, str):
        return [one]
    with one:
        try:
            one.sendall(rest)
            return [*said(one.recv(1 << 16)), "answered"]
        except OSError as why:
            return [type(why).__name__]


def count(all_of_them):
    texts = [", ".join(one) for one in all_of_them]
    return {text: texts.count(text) for text in sorted(set(texts))}


def full_output(start, directory, upstream):
    """Standard output and error are a full pipe, which has a reader that does not read."""
    server = start(directory, upstream)
    server.stop()
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    os.set_blocking(write, False)
    try:
        while os.write(write, b"x" * PIPE_BYTES):
            pass
    except BlockingIOError:
        os.set_blocking(write, True)
    server = again(server, stdout=write, stderr=write)
    os.close(write)
    time.sleep(FULL_S)
    before = head_of(server)
    time.sleep(FULL_S)
    result = {"served": is_served(server), f"heads in {FULL_S} s": gain(server, before)}
    server.process.terminate()
    time.sleep(END_S)
    result["exit on SIGTERM"] = server.process.poll()
    os.close(read)
    end(server.process)
    return result


DRILLS = {"malformed-heads": malformed_heads, "cut-heads": cut_heads, "full-output": full_output}
LIVE = {"full-output"}
