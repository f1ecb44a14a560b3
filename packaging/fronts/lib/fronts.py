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
        ports = self.ports() | {8080: self.address[1]}
        return {f"127.0.0.1:{shipped}": f"127.0.0.1:{real}" for shipped, real in ports.items()}

    def ports(self):
        """Shipped ports of the servers, and those of the test."""
        neves = {8545 + index: neve.tap.address[1] for index, neve in enumerate(self.rig.neves)}
        return neves | {9650: self.rig.node_tap.address[1]}

    def shipped(self):
        return self.text(self.file)

    def text(self, file):
        return (PLACE / self.name / file).read_text()

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


def replaced(text, begin, end, piece):
    """The text with a piece in the place of all from `begin` to `end`, or to the last line."""
    before, rest = text.split(begin, 1)
    return f"{before}\n{piece}" + (end + rest.split(end, 1)[1] if end else "")


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
        return replaced(super().shipped(), "upstream neve {", "\n\n", self.text("several.conf"))


class Haproxy(Front):
    name, file, flags, miss_status = "haproxy", "neve.cfg", ["--miss-status", "404"], 404
    needs_check_if_stuck = True
    sockets_need_ready = calls_need_ready = True
    notices_s = 4

    def command(self, path):
        return [self.program(), "-db", "-f", str(path)]


class SeveralHaproxy(Haproxy):
    """HAProxy before several neves: the sections of several.cfg are in the place of three of neve.cfg."""

    def shipped(self):
        # The name of a socket that has no file is one for the whole machine.
        sections = self.text("several.cfg").replace("abns@neves", f"abns@neves-{self.address[1]}")
        return replaced(super().shipped(), "\nbackend calls\n", "\nbackend node_only", sections)


class Varnish(Front):
    name, file = "varnish", "neve.vcl"
    sockets_need_ready = calls_need_ready = True
    notices_s = 4

    @classmethod
    def program(cls):
        return found("varnishd")

    def swaps(self):
        return {f'.port = "{shipped}"': f'.port = "{real}"' for shipped, real in self.ports().items()}

    def command(self, path):
        address = f"127.0.0.1:{self.address[1]}"
        kept = ["-j", "none", "-s", "malloc,64m", "-n", str(self.directory / "n")]
        return [self.program(), "-F", *kept, "-a", address, "-f", str(path)]


class SeveralVarnish(Varnish):
    """Varnish before several neves: several.vcl is in the place of a backend and a subroutine of neve.vcl."""

    def shipped(self):
        return replaced(super().shipped(), "backend neve_ready {", "\nbackend node {", self.text("several.vcl"))


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


class SeveralCaddy(Caddy):
    """Caddy before several neves: the snippet of several.Caddyfile is in the place of the one of Caddyfile."""

    def shipped(self):
        return replaced(super().shipped(), "(neves) {", "\n\n", self.text("several.Caddyfile"))


class Envoy(Front):
    name, file = "envoy", "envoy.yaml"
    needs_check_if_stuck = True
    sockets_need_ready = calls_need_ready = True
    notices_s = 4

    def swaps(self):
        ports = self.ports() | {8080: self.address[1]}
        return {f"port_value: {shipped}": f"port_value: {real}" for shipped, real in ports.items()}

    def command(self, path):
        return [self.program(), "-c", str(path), "--use-dynamic-base-id", "--concurrency", "1", "-l", "warn"]


class SeveralEnvoy(Envoy):
    """Envoy before several neves: the clusters of several.yaml are in the place of those of envoy.yaml."""

    def shipped(self):
        return replaced(super().shipped(), "  clusters:\n", None, self.text("several.yaml"))


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
        url = lambda tap: f"http://127.0.0.1:{tap.address[1]}"
        # One address, or several with spaces between.
        neves = " ".join(url(neve.tap) for neve in self.rig.neves)
        program = [self.program(), str(PLACE / "lib/miniflare.mjs")]
        return [*program, str(self.address[1]), str(path), neves, url(self.rig.node_tap)]


FRONTS = [Nginx, Varnish, Haproxy, Caddy, Worker, Envoy]
# How each stands before several neves. The Worker's own file does.
SEVERAL = {Nginx: SeveralNginx, Varnish: SeveralVarnish, Haproxy: SeveralHaproxy, Caddy: SeveralCaddy, Worker: Worker, Envoy: SeveralEnvoy}
