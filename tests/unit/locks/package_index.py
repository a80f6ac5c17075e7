"""A package index on loopback that serves tiny real wheels (PEP 503)."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import threading
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

_EXTRA = re.compile(r"extra == '([^']+)'")


def wheel_bytes(
    name: str,
    version: str,
    requires: Sequence[str] = (),
    modules: Mapping[str, str] | None = None,
    python: str = "",
    tag: str = "py3-none-any",
) -> tuple[str, bytes]:
    """File name and content of a wheel that holds `modules`, or one empty one of its own name."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += f"Requires-Python: {python}\n" if python else ""
    extras = sorted({extra for line in requires for extra in _EXTRA.findall(line)})
    metadata += "".join(f"Provides-Extra: {extra}\n" for extra in extras)
    files = {
        **{f"{one}/__init__.py": text for one, text in (modules or {module: ""}).items()},
        f"{info}/METADATA": metadata + "".join(f"Requires-Dist: {r}\n" for r in requires),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return f"{module}-{version}-{tag}.whl", buffer.getvalue()


class PackageIndex:
    """Several indexes on one port, by the first part of the path."""

    def __init__(self) -> None:
        self.port = 0
        self.requests = 0
        #: Path of an index → status that it answers everything with.
        self.broken: dict[str, int] = {}
        self._pages: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._files: dict[str, bytes] = {}

    def url(self, index: str, credentials: str = "") -> str:
        return f"http://{credentials}127.0.0.1:{self.port}/{index}/simple"

    def add(
        self,
        index: str,
        name: str,
        version: str,
        *requires: str,
        modules: Mapping[str, str] | None = None,
    ) -> None:
        filename, data = wheel_bytes(name, version, requires, modules)
        self._offer(index, name, filename, data)

    def add_wheel(
        self, index: str, name: str, version: str, tag: str, *requires: str, python: str = ""
    ) -> None:
        """A wheel for one platform, `cp311-cp311-manylinux_2_28_x86_64`, and for some Pythons."""
        filename, data = wheel_bytes(name, version, requires, python=python, tag=tag)
        self._offer(index, name, filename, data, python)

    def add_source(self, index: str, name: str, version: str, trap: str, *requires: str) -> None:
        """A source distribution that says `requires`, or nothing; a build of it writes `trap`."""
        metadata = f"Metadata-Version: {'2.2' if requires else '1.1'}\nName: {name}\n"
        folder = f"{name}-{version}"
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for path, text in {
                "setup.py": f"open({trap!r}, 'w').close()\nimport setuptools\nsetuptools.setup()\n",
                "PKG-INFO": f"{metadata}Version: {version}\n"
                + "".join(f"Requires-Dist: {line}\n" for line in requires),
            }.items():
                member = tarfile.TarInfo(f"{folder}/{path}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
        self._offer(index, name, f"{folder}.tar.gz", buffer.getvalue())

    def _offer(self, index: str, name: str, filename: str, data: bytes, python: str = "") -> None:
        path = f"/{index}/files/{filename}"
        self._files[path] = data
        only = f' data-requires-python="{escape(python)}"' if python else ""
        link = f'<a href="{path}#sha256={hashlib.sha256(data).hexdigest()}"{only}>{filename}</a>'
        self._pages[index, name].append(link)

    def sha256(self, index: str, filename: str) -> str:
        return hashlib.sha256(self._files[f"/{index}/files/{filename}"]).hexdigest()

    def size(self, index: str, filename: str) -> int:
        return len(self._files[f"/{index}/files/{filename}"])

    def answer(self, path: str) -> tuple[int, str, bytes]:
        self.requests += 1
        index, _, rest = path.lstrip("/").partition("/")
        if index in self.broken:
            return self.broken[index], "text/plain", b""
        if path in self._files:
            return 200, "application/octet-stream", self._files[path]
        links = self._pages.get((index, rest.removeprefix("simple/").strip("/")))
        if not links:
            return 404, "text/plain", b""
        return 200, "text/html", ("<!DOCTYPE html><html><body>" + "".join(links)).encode()


@contextmanager
def serve() -> Iterator[PackageIndex]:
    index = PackageIndex()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, body = index.answer(unquote(self.path))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        #: uv opens dozens of connections at once; the usual queue of five would drop some.
        request_queue_size = 128

    server = Server(("127.0.0.1", 0), Handler)
    index.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
