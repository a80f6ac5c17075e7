"""A package index on loopback, which can misbehave on demand.

    with IndexServer(folder, pages="json", metadata=True) as server:
        server.misbehave(server.path_of("x-1-py3-none-any.whl"), answering(503), times=2)
        client.project(server.url, "x")
        assert server.count("/simple/x/") == 1

`folder` holds wheels and source distributions side by side. Pages are at `/simple/<name>/`, files
at `/files/<filename>`. Every request is kept in `server.requests`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from loopback import LoopbackServer, Misdeed, Request, Response, Serve

from buildmatrix.base.data import replace

JSON = "application/vnd.pypi.simple.v1+json"
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


def ignoring_ranges(*, length: bool = True) -> Misdeed:
    """The whole file; without its length, if so wanted."""

    def misdeed(request: Request, serve: Serve) -> Response:
        headers = {name: value for name, value in request.headers.items() if name != "range"}
        response = serve(replace(request, headers=headers))
        body = response.body
        assert isinstance(body, bytes)
        kept = {name: value for name, value in response.headers.items() if name != "accept-ranges"}
        return replace(response, headers=kept, body=body if length else iter([body]))

    return misdeed


def huge(size: int, content_type: str = "text/html") -> Misdeed:
    """A page of `size` bytes; its length is not told."""
    piece = b'<a href="/files/x-1.tar.gz">x-1.tar.gz</a>\n' * 1500

    def pieces() -> Iterator[bytes]:
        for _ in range(size // len(piece) + 1):
            yield piece

    return lambda request, serve: Response(200, pieces(), {"content-type": content_type})


class IndexServer(LoopbackServer):
    """The server; starts with `with`.

    `pages`: as HTML whatever is asked for, or as JSON to those who accept it. `metadata`: the
    METADATA of each wheel lies beside it. `ranges`: which range requests are understood: all, all
    but suffix ranges (answered by 416), or none. `etags`: files carry an ETag. `login`: wanted for
    everything. `certificate`: PEM files of a certificate and its key, for https.
    """

    def __init__(
        self,
        folder: Path,
        *,
        pages: Literal["html", "json"] = "html",
        metadata: bool = False,
        ranges: Literal["all", "explicit", "none"] = "all",
        etags: bool = True,
        login: tuple[str, str] | None = None,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        self._folder = folder
        self._pages = pages
        self._metadata = metadata
        self._ranges = ranges
        self._etags = etags
        self._login = login
        self._announced: dict[str, dict[str, object]] = {}
        super().__init__(certificate)

    @property
    def url(self) -> str:
        """The address of the index."""
        return f"{self.origin}/simple/"

    @staticmethod
    def path_of(filename: str) -> str:
        """Where a file is served."""
        return f"/files/{filename}"

    def file_url(self, filename: str) -> str:
        """The whole address of a file."""
        return self.origin + self.path_of(filename)

    def announce(self, filename: str, **said: object) -> None:
        """What the pages say of a file instead of the truth: sha256, size, metadata_sha256, url."""
        self._announced.setdefault(filename, {}).update(said)

    def _serve(self, request: Request) -> Response:
        if self._login is not None:
            token = base64.b64encode(":".join(self._login).encode()).decode()
            if request.headers.get("authorization") != f"Basic {token}":
                return Response(401, headers={"www-authenticate": 'Basic realm="index"'})
        path = request.path.partition("?")[0]
        if match := re.fullmatch(r"/simple/([a-z0-9-]+)/", path):
            return self._page(match[1], request)
        if match := re.fullmatch(r"/files/([^/]+?)(\.metadata)?", path):
            file = self._folder / match[1]
            if file.is_file() and match[2] and self._metadata:
                return self._data(_metadata(file), request)
            if file.is_file() and not match[2]:
                return self._data(file.read_bytes(), request)
        return Response(404)

    def _page(self, project: str, request: Request) -> Response:
        files = [
            self._told(file)
            for file in sorted(self._folder.iterdir())
            if re.sub(r"[-_.]+", "-", file.name.partition("-")[0]).lower() == project
        ]
        if not files:
            return Response(404)
        if self._pages == "json" and JSON in request.headers.get("accept", ""):
            return Response(200, _json(project, files), {"content-type": JSON})
        return Response(200, _html(files), {"content-type": "text/html; charset=utf-8"})

    def _told(self, file: Path) -> dict[str, object]:
        data = file.read_bytes()
        told: dict[str, object] = {
            "filename": file.name,
            "url": f"../..{self.path_of(file.name)}",
            "sha256": hashlib.sha256(data).hexdigest(),
            "size": len(data),
        }
        if self._metadata and file.suffix == ".whl":
            told["metadata_sha256"] = hashlib.sha256(_metadata(file)).hexdigest()
        return told | self._announced.get(file.name, {})

    def _data(self, data: bytes, request: Request) -> Response:
        headers = {"content-type": "application/octet-stream"}
        if self._etags:
            headers["etag"] = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        if self._ranges == "none":
            return Response(200, data, headers)
        headers["accept-ranges"] = "bytes"
        match = _RANGE.fullmatch(request.headers.get("range", ""))
        if match is None:
            return Response(200, data, headers)
        if match[1]:
            start, stop = int(match[1]), min(int(match[2] or len(data)) + 1, len(data))
        elif self._ranges == "all":
            start, stop = max(0, len(data) - int(match[2])), len(data)
        else:
            start, stop = len(data), 0
        if start >= stop:
            headers["content-range"] = f"bytes */{len(data)}"
            return Response(416, b"", headers)
        headers["content-range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        return Response(206, data[start:stop], headers)


def _metadata(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (
            name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)
        )
        return archive.read(name)


def _json(project: str, files: list[dict[str, object]]) -> bytes:
    entries = []
    for file in files:
        entry: dict[str, object] = {
            "filename": file["filename"],
            "url": file["url"],
            "hashes": {"sha256": file["sha256"]},
            "size": file["size"],
        }
        if "metadata_sha256" in file:
            entry["core-metadata"] = {"sha256": file["metadata_sha256"]}
        entries.append(entry)
    page = {"meta": {"api-version": "1.1"}, "name": project, "files": entries}
    return json.dumps(page).encode()


def _html(files: list[dict[str, object]]) -> bytes:
    lines = ["<!DOCTYPE html>", "<html><body>"]
    for file in files:
        metadata = file.get("metadata_sha256")
        attribute = f' data-core-metadata="sha256={metadata}"' if metadata else ""
        link = f"{file['url']}#sha256={file['sha256']}"
        lines.append(f'<a href="{link}"{attribute}>{file["filename"]}</a><br/>')
    return "\n".join([*lines, "</body></html>"]).encode()
