"""A tap: passes bytes on between a front and a server, notes the requests, and can play dead or stuck."""

import re
import socket
import threading

HEAD = re.compile(rb"(?:GET|HEAD|POST|PUT|DELETE|OPTIONS) \S+ HTTP/1\.[01]\r\n.*?\r\n\r\n", re.S)


class Tap:
    def __init__(self, target):
        self.target, self.mode = target, "pass"
        self.lock, self.streams, self.noted = threading.Lock(), set(), []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        self.accepting()

    def accepting(self):
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def accept(self, listener):
        while True:
            try:
                stream, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(stream,), daemon=True).start()

    def set(self, mode):
        """`pass`, `dead` (connections are refused) or `stuck` (nothing is answered). Open connections are cut."""
        if mode == self.mode:
            return
        if self.mode == "dead":
            self.listener = socket.create_server(self.address)
            self.accepting()
        self.mode = mode
        if mode == "dead":
            # Closing alone leaves the thread in accept, and with it the socket.
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
        self.cut()

    def cut(self):
        with self.lock:
            streams, self.streams = self.streams, set()
        for stream in streams:
            try:
                stream.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def serve(self, stream):
        note = bytearray()
        with self.lock:
            self.streams.add(stream)
            self.noted.append(note)
        if self.mode != "pass":
            copy(stream, None, note)
            return
        try:
            server = socket.create_connection(self.target, 5)
        except OSError:
            stream.close()
            return
        server.settimeout(None)
        with self.lock:
            self.streams.add(server)
        threading.Thread(target=copy, args=(server, stream, None), daemon=True).start()
        copy(stream, server, note)

    def clear(self):
        """Forgets the requests so far."""
        with self.lock:
            for note in self.noted:
                note.clear()

    def heads(self):
        """The heads of requests since the last `clear`, without checks of health."""
        with self.lock:
            noted = [bytes(note) for note in self.noted]
        heads = [head.decode("latin-1") for note in noted for head in HEAD.findall(note)]
        return [head for head in heads if " /ready " not in head.split("\r\n")[0]]

    def lines(self):
        return [head.split("\r\n")[0] for head in self.heads()]

    def close(self):
        self.set("dead")


def copy(source, sink, note):
    """Passes bytes on until one side ends, then ends the other."""
    try:
        while data := source.recv(65536):
            if note is not None:
                note += data
            if sink is not None:
                sink.sendall(data)
    except OSError:
        pass
    for stream in (source, sink):
        try:
            stream and stream.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
    source.close()


def values(head, name):
    """The values of all lines of this header."""
    lines = (line.partition(":") for line in head.split("\r\n")[1:])
    return [value.strip() for key, _, value in lines if key.strip().lower() == name]
