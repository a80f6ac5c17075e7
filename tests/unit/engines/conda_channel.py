"""Packages of conda, made by hand, and a channel of them on loopback."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import zstandard

#: Where packages are built: longer than any prefix that they are installed to.
PLACEHOLDER = "/home/conda/feedstock_root/build_artifacts/" + "placehold_" * 18


@dataclass(frozen=True)
class Content:
    """A file of a package; a text with the placeholder in it, or bytes, or the target of a link."""

    data: bytes = b""
    link: str = ""
    mode: int = 0o644
    #: `text` or `binary` if the placeholder is in it.
    prefix: str = ""


def make_package(
    channel: Path,
    stem: str,
    files: Mapping[str, Content],
    *,
    subdir: str = "linux-64",
    depends: Sequence[str] = (),
    entry_points: Sequence[str] = (),
    noarch: str = "",
    ending: str = ".conda",
    paths: Sequence[Mapping[str, object]] | None = None,
    **index: object,
) -> Path:
    """Write a package and return its file; `paths` are in place of the truth."""
    name, version, build = stem.rsplit("-", 2)
    rows: list[Mapping[str, object]] = []
    for path, content in files.items():
        row: dict[str, object] = {
            "_path": path,
            "path_type": "softlink" if content.link else "hardlink",
            "sha256": hashlib.sha256(content.data).hexdigest(),
            "size_in_bytes": len(content.data),
        }
        if content.prefix:
            row |= {"prefix_placeholder": PLACEHOLDER, "file_mode": content.prefix}
        rows.append(row)
    about = {"name": name, "version": version, "build": build, "build_number": 0, "subdir": subdir}
    about |= {"depends": list(depends), **({"noarch": noarch} if noarch else {}), **index}
    info = {
        "info/index.json": about,
        "info/paths.json": {"paths_version": 1, "paths": rows if paths is None else list(paths)},
    }
    if noarch == "python":
        settings = {"type": "python", "entry_points": list(entry_points)}
        info["info/link.json"] = {"noarch": settings, "package_metadata_version": 1}
    texts = {path: Content(json.dumps(value).encode()) for path, value in info.items()}
    folder = channel / subdir
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{stem}{ending}"
    if ending == ".conda":
        with zipfile.ZipFile(place, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("metadata.json", '{"conda_pkg_format_version": 2}')
            for part, members in (("pkg", files), ("info", texts)):
                packed = zstandard.ZstdCompressor().compress(_tar(members))
                archive.writestr(f"{part}-{stem}.tar.zst", packed)
    else:
        import bz2

        place.write_bytes(bz2.compress(_tar({**texts, **files})))
    return place


def _tar(members: Mapping[str, Content]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, content in members.items():
            member = tarfile.TarInfo(path)
            member.mode, member.size = content.mode, len(content.data)
            if content.link:
                member.type, member.linkname = tarfile.SYMTYPE, content.link
            archive.addfile(member, io.BytesIO(content.data))
    return buffer.getvalue()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def serve(channel: Path) -> Iterator[str]:
    """The address of the channel in a folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(channel)))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def locked(url: str, file: Path) -> str:
    """An entry of `pixi.lock` without its requirements."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    address = f"{url}/{file.parent.name}/{file.name}"
    return f"- conda: {address}\n  sha256: {digest}\n  size: {file.stat().st_size}\n"
