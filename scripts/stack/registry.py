"""An image registry on loopback: Debian's docker-registry, unpacked and started by hand.

The package is unpacked rather than installed, because its installation adds a user and
a system service, and no more than the program is needed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from . import apt
from .layout import Layout
from .process import State, processes_naming, replace, start
from .progress import say

NAME = "docker-registry"
_PORT = 5000
_START_SECONDS = 20
_MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)


@dataclass(frozen=True)
class Registry:
    """A registry that answers on this loopback port."""

    port: int

    @property
    def prefix(self) -> str:
        """What goes in front of an image's name to take it from here."""
        return f"localhost:{self.port}/"

    def digest(self, image: str) -> str | None:
        """The digest under a `name:tag`, provided every blob it refers to is there."""
        name, _, tag = image.rpartition(":")
        with self._get("GET", f"/v2/{name}/manifests/{tag}") as answer:
            if answer.status != 200:
                return None
            digest = answer.headers["Docker-Content-Digest"]
            manifest = json.loads(answer.read())
        blobs = [manifest.get("config"), *manifest.get("layers", [])]
        for blob in filter(None, blobs):
            with self._get("HEAD", f"/v2/{name}/blobs/{blob['digest']}") as answer:
                if answer.status != 200 or int(answer.headers["Content-Length"]) != blob["size"]:
                    return None
        return digest

    @contextlib.contextmanager
    def _get(self, method: str, path: str) -> Iterator[http.client.HTTPResponse]:
        """One request, past any proxy: the registry is on this machine."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, headers={"Accept": _MANIFESTS})
            yield connection.getresponse()
        finally:
            connection.close()

    def answers(self) -> bool:
        """Whether it speaks the registry protocol."""
        try:
            with self._get("GET", "/v2/") as answer:
                return answer.status == 200
        except (OSError, http.client.HTTPException):
            return False


def find(layout: Layout) -> Registry | None:
    """The stack's registry, if it runs and answers."""
    daemon = State(layout.state).read().get(NAME)
    found = Registry(daemon.port) if daemon else None
    return found if found and found.answers() else None


def ensure(layout: Layout) -> Registry:
    """Return the stack's registry, installing and starting it if need be."""
    found = find(layout)
    if found:
        say(f"registry: answers on port {found.port}, reused")
        return found
    stop(layout)
    program = layout.cache / "registry-prefix" / "usr/bin/docker-registry"
    digest = program.parent / "docker-registry.sha256"
    if not program.exists() or not digest.exists() or digest.read_text() != apt.sha256(program):
        apt.require_debian_root("Installing an image registry")
        archive = apt.archive(apt.NEWER_SUITES, layout)
        package = archive.newest("docker-registry", apt.runs_on_this_libc)
        say(f"registry: downloading docker-registry {package.version}")
        for deb in archive.download([package]):
            apt.unpack(deb, layout.cache / "registry-prefix")
            deb.unlink()
        replace(digest, apt.sha256(program))
    port = _free_port()
    config = layout.run / "registry.json"
    settings = {
        "version": "0.1",
        "log": {"level": "warn"},
        "storage": {
            "filesystem": {"rootdirectory": str(layout.cache / "registry")},
            "delete": {"enabled": True},
        },
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    replace(config, json.dumps(settings, indent=1) + "\n")  # JSON is YAML
    found = Registry(port)
    daemon = start(
        NAME,
        [program, "serve", config],
        log=layout.log(NAME),
        ready=found.answers,
        seconds=_START_SECONDS,
        port=port,
    )
    State(layout.state).add(daemon)
    say(f"registry: started on port {port}")
    return found


def stop(layout: Layout) -> bool:
    """Stop the stack's registry; say whether there was one."""
    state = State(layout.state)
    daemon = state.read().get(NAME)
    for process in [daemon] if daemon else processes_naming(layout.run, [NAME]):
        say(f"registry: stopping docker-registry (pid {process.pid})")
        process.stop(patience=10)
    state.remove(NAME)
    return daemon is not None


def _free_port() -> int:
    """The usual port, or any other when something listens there on either loopback address."""
    for candidate in (_PORT, 0):
        try:
            with socket.socket(socket.AF_INET6) as six:
                six.settimeout(1)
                if candidate and six.connect_ex(("::1", candidate)) == 0:
                    continue
        except OSError:
            pass  # no IPv6 here, so nothing can listen there
        with socket.socket() as four:
            four.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                four.bind(("127.0.0.1", candidate))
            except OSError:
                continue
            port: int = four.getsockname()[1]
            return port
    raise AssertionError("the kernel always has a free port")
