"""The fronts: where each is found, and how it runs its shipped configuration."""

import os
import pathlib
import shutil

from .rig import Process, free_address, listens

PLACE = pathlib.Path(__file__).resolve().parents[1]
ROOT = PLACE.parents[1]
TOOLS = ROOT / "target/tools"


class Front:
    """A front that runs. A subclass has the name of its folder, and the command."""

    name = ""
    file = ""
    # Flags of neve beyond those of all fronts.
    flags = []
    miss_status = 421
    # True if the front asks /ready, and sends sockets or also calls to the node while neve is not.
    sockets_need_ready = calls_need_ready = False
    # Seconds in which it notices.
    notices_s = 0
    # True if only its check of /ready ends the wait for a neve that says nothing.
    needs_check_if_stuck = False

    def __init__(self, rig):
        self.rig, self.address = rig, free_address()
        self.directory = rig.directory / self.name
        self.directory.mkdir()
        command = self.command(self.configured())
        self.process = Process(command, self.directory, self.name)
        try:
            self.process.wait_for(lambda: listens(self.address))
        except BaseException:
            self.process.end()
            raise

    @classmethod
    def program(cls):
        """The path of the program, or nothing."""
        return found(cls.name)

    def swaps(self):
        """Pieces of the shipped file, and what stands there in the test."""
        port = lambda tap: f"127.0.0.1:{tap.address[1]}"
        neves = {f"127.0.0.1:{8545 + index}": port(neve.tap) for index, neve in enumerate(self.rig.neves)}
        return neves | {"127.0.0.1:9650": port(self.rig.node_tap), "127.0.0.1:8080": f"127.0.0.1:{self.address[1]}"}

    def shipped(self):
        return (PLACE / self.name / self.file).read_text()

    def configured(self):
        """Writes the shipped file with the addresses of the test."""
        text = self.shipped()
        for shipped, real in self.swaps().items():
            if shipped not in text:
                raise ValueError(f"{self.name}/{self.file} does not have {shipped}")
            # The marks keep a port of the test from being taken for a shipped one.
            text = text.replace(shipped, "\0".join(real))
        path = self.directory / self.file
        path.write_text(text.replace("\0", ""))
        return path

    def address_of(self, client):
        """The address that the front names to neve for this client."""
        return client

    def end(self):
        self.process.end()


def found(*names):
    """The first of the programs: in target/tools, in the search path, or where Debian hides them."""
    for name in names:
        for place in (str(TOOLS / "bin"), str(TOOLS / "envoy/bin"), os.environ.get("PATH", ""), "/usr/sbin"):
            if path := shutil.which(name, path=place):
                return path
    return None


class Nginx(Front):
    name, file = "nginx", "neve.conf"

    def command(self, path):
        kept = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        kept = " ".join(f"{name}_temp_path {self.directory}/{name};" for name in kept)
        user = "user root;" if os.geteuid() == 0 else ""
        main = f"{user} daemon off; worker_processes 1; pid {self.directory}/pid; error_log stderr;\nevents {{}}\n"
        (self.directory / "nginx.conf").write_text(main + f"http {{ access_log off; {kept} include {path}; }}\n")
        return [self.program(), "-e", "stderr", "-c", str(self.directory / "nginx.conf")]


class SeveralNginx(Nginx):
    """nginx before several neves: the block of several.conf is in the place of the one of neve.conf."""

    def shipped(self):
        text, block = super().shipped(), (PLACE / "nginx/several.conf").read_text()
        before, after = text.split("upstream neve {", 1)
        return before + block[block.index("upstream neve {"):] + after.split("}", 1)[1]


class Haproxy(Front):
    name, file, flags, miss_status = "haproxy", "neve.cfg", ["--miss-status", "404"], 404
    needs_check_if_stuck = True
    sockets_need_ready = calls_need_ready = True
    notices_s = 4

    def command(self, path):
        return [self.program(), "-db", "-f", str(path)]


class SeveralHaproxy(Haproxy):
    """HAProxy before several neves: the sections of several.cfg are in the place of two of neve.cfg."""

    def shipped(self):
        text, sections = super().shipped(), (PLACE / "haproxy/several.cfg").read_text()
        before, after = text.split("\nbackend calls\n", 1)
        sections = sections.replace("abns@neves", f"abns@neves-{self.address[1]}")
        return before + sections[sections.index("\nbackend calls"):] + "\n" + after[after.index("# Paths that only neve has"):]


class Varnish(Front):
    name, file = "varnish", "neve.vcl"
    sockets_need_ready = calls_need_ready = True
    notices_s = 4

    @classmethod
    def program(cls):
        return found("varnishd")

    def swaps(self):
        neve, node = self.rig.neve.tap.address[1], self.rig.node_tap.address[1]
        return {'.port = "8545"': f'.port = "{neve}"', '.port = "9650"': f'.port = "{node}"'}

    def command(self, path):
        address = f"127.0.0.1:{self.address[1]}"
        kept = ["-j", "none", "-s", "malloc,64m", "-n", str(self.directory / "n")]
        return [self.program(), "-F", *kept, "-a", address, "-f", str(path)]


class Caddy(Front):
    name, file = "caddy", "Caddyfile"
    sockets_need_ready = calls_need_ready = True
    notices_s = 3

    def swaps(self):
        swaps = super().swaps()
        swaps["http://:8080"] = swaps.pop("127.0.0.1:8080").replace("127.0.0.1", "http://")
        return swaps

    def command(self, path):
        return [self.program(), "run", "--adapter", "caddyfile", "--config", str(path)]


class Envoy(Front):
    name, file = "envoy", "envoy.yaml"
    needs_check_if_stuck = True
    sockets_need_ready = calls_need_ready = True
    notices_s = 4

    def swaps(self):
        ports = {8545: self.rig.neve.tap, 9650: self.rig.node_tap}
        ports = {port: tap.address[1] for port, tap in ports.items()} | {8080: self.address[1]}
        return {f"port_value: {shipped}": f"port_value: {real}" for shipped, real in ports.items()}

    def command(self, path):
        return [self.program(), "-c", str(path), "--use-dynamic-base-id", "--concurrency", "1", "-l", "warn"]


class Worker(Front):
    """workerd, by miniflare. Node resolves it from the variable MINIFLARE, by default target/tools/miniflare."""

    name, file = "worker", "worker.js"

    @classmethod
    def program(cls):
        return found("node") if (cls.modules() / "node_modules/miniflare").exists() else None

    @staticmethod
    def modules():
        return pathlib.Path(os.environ.get("MINIFLARE", TOOLS / "miniflare"))

    def swaps(self):
        return {}

    def command(self, path):
        os.environ["MINIFLARE"] = str(self.modules()) + "/"
        neve, node = (f"http://127.0.0.1:{tap.address[1]}" for tap in (self.rig.neve.tap, self.rig.node_tap))
        return [self.program(), str(PLACE / "lib/miniflare.mjs"), str(self.address[1]), str(path), neve, node]


FRONTS = [Nginx, Varnish, Haproxy, Caddy, Worker, Envoy]
SEVERAL = [SeveralNginx, SeveralHaproxy]
