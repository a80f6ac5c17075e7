"""Packages of conda as trees: the files of an environment, read without being unpacked to disk.

Formats: `.conda`, a stored ZIP of `info-*.tar.zst` and `pkg-*.tar.zst`, and `.tar.bz2`
(https://conda.org/learn/ceps); in both `info/index.json` and `info/paths.json`, with `_path`,
`path_type`, `sha256` and `size_in_bytes` (conda/models/package_info.py, `PathsJson` of rattler).
Clients install the files that `paths.json` lists, and no others.
"""

from __future__ import annotations

import bz2
import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from buildmatrix.facts.trees.archive import (
    INFLATION_ALLOWANCE,
    MAX_INFLATION,
    BoundedStream,
    BytesSource,
    Slice,
    SliceReader,
    Spool,
    iter_decompressed,
    safe_path,
)
from buildmatrix.facts.trees.base import (
    Closing,
    File,
    RandomAccess,
    Symlink,
    Tree,
    Trouble,
    Unreadable,
)
from buildmatrix.facts.trees.decompression import ENDLESS, ForwardSource, StreamDecompressor
from buildmatrix.facts.trees.tar import TarMember, members
from buildmatrix.facts.trees.wheel import WheelTree
from buildmatrix.facts.trees.zip_archive import Bytes

#: Members of a package; the largest real ones have 40,000.
MOST_FILES = 200_000
#: Bytes of `index.json` and `paths.json`; real ones of 30,000 files have 10 MB.
LARGEST_INFO = 32 << 20
#: Values in one of them; a file has up to seven.
_MOST_VALUES = 8 * MOST_FILES
#: Unpacked bytes up to the end of both, which archives begin with.
_LARGEST_BEGINNING = 256 << 20
#: Bytes of an archive beyond those of its files: licenses, recipe and tests are in `info/`.
_INFO_ALLOWANCE = 4 << 20
INDEX, PATHS = "info/index.json", "info/paths.json"
_INFO, _ZIP = "info/", ".conda"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SURROGATE = re.compile("[\ud800-\udfff]")
#: In characters; Linux has the same limit in bytes.
_LONGEST_PATH = 4096
_NAME = re.compile(r"[A-Za-z0-9_.!+-]{1,200}")


@dataclass(frozen=True, slots=True)
class PackagedFile:
    """A file that a package installs, by its own list."""

    #: In the package; `site-packages/` if it is `noarch: python`.
    path: str
    #: As stated; 0 if it is not.
    size: int
    #: Hex, of the packaged bytes; empty if it is not stated.
    sha256: str
    is_link: bool


@dataclass(frozen=True, slots=True)
class PackageInfo:
    """Name and files of a package, as its `info/` states them."""

    name: str
    version: str
    build: str
    #: Sorted by path.
    files: tuple[PackagedFile, ...]

    def check_size(self, packed: int) -> None:
        """Raise `Unreadable` if the listed files are smaller than an archive of `packed` bytes."""
        size = sum(file.size for file in self.files)
        if packed > size + _INFO_ALLOWANCE:
            raise Unreadable(
                f"its {PATHS} lists {size} bytes, and the archive has {packed}: the list is false"
            )


class CondaTree(Closing, Tree):
    """The files that a package installs, below the folder of the environment.

    Raises `Unreadable` for an archive that is damaged, a bomb, or no package. A record in
    `conda-meta` makes the package the owner of its files.
    """

    def __init__(self, archive: Slice, filename: str) -> None:
        self._spool = Spool()
        try:
            self._members = find_members(archive, filename, self._spool)
            data = {
                name: _read_json(self._members[name])
                for name in (INDEX, PATHS)
                if name in self._members
            }
            self.info = parse_info(data)
            for file in self.info.files:
                member = self._members.get(file.path)
                if member is None or (member.data is None and member.kind != "symlink"):
                    what = "not there" if member is None else f"a {member.kind} or sparse"
                    raise Unreadable(f"its {PATHS} lists {file.path[:200]!r}, which is {what}")
        except BaseException:
            self.close()
            raise
        names = [file.path for file in self.info.files]
        record = {"name": self.info.name, "version": self.info.version, "files": names}
        self._record = json.dumps(record).encode()

    def close(self) -> None:
        """Free the unpacked files."""
        self._spool.close()

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        """See `Tree.walk`: sorted by path."""
        yield File(record_path(self.info), len(self._record))
        for file in self.info.files:
            member = self._members[file.path]
            if member.data is None:
                yield Symlink(file.path, member.target)
            else:
                yield File(file.path, member.data.size)

    def open(self, path: str) -> AbstractContextManager[RandomAccess]:
        """See `Tree.open`."""
        if path == record_path(self.info):
            return nullcontext(BytesSource(self._record))
        data = self._members[path].data if path in self._members else None
        if data is None:
            raise FileNotFoundError(path)
        return nullcontext(Slice(data, 0, data.size))


def record_path(info: PackageInfo) -> str:
    """Return the path of the record that lists an installed package."""
    return f"conda-meta/{info.name}-{info.version}-{info.build}.json"


def read_info(source: Bytes, filename: str) -> PackageInfo:
    """Return name and files of a package, from as few of its bytes as possible.

    Of a `.conda` that is its smaller archive, of a `.tar.bz2` its beginning. Raises as `CondaTree`
    does, and `Unreadable` for a list that is false by the size of the archive.
    """
    whole = Slice(source, 0, source.size)
    is_zip = filename.endswith(_ZIP)
    first, *others = _find_archives(whole, ("info-",)) if is_zip else [whole]
    if others:
        raise Unreadable("it has several archives of its `info/`")
    info = parse_info(_find_info(first, is_alone=not is_zip))
    info.check_size(whole.size - (first.size if is_zip else 0))
    return info


def parse_info(data: Mapping[str, bytes]) -> PackageInfo:
    """Return name and files of a package, from `index.json` and `paths.json`.

    Raises `Unreadable`.
    """
    index, paths = (_parse(data, name) for name in (INDEX, PATHS))
    rows = paths.get("paths")
    name, version, build = (str(index.get(key, "")) for key in ("name", "version", "build"))
    if not all(map(_NAME.fullmatch, (name, version, build or "0"))):
        raise Unreadable(f"its {INDEX} has no valid name, version and build")
    if not isinstance(rows, list):
        raise Unreadable(f"its {PATHS} lists no files")
    if len(rows) > MOST_FILES:
        raise Unreadable(f"its {PATHS} lists more than {MOST_FILES} files")
    files: dict[str, PackagedFile] = {}
    for row in rows:
        path = row.get("_path") if isinstance(row, dict) else None
        if not isinstance(path, str):
            raise Unreadable(f"its {PATHS} has a file without a path")
        if row.get("path_type") == "directory":
            continue
        if not _is_path(path):
            raise Unreadable(f"its {PATHS} lists {path[:200]!a}, which no environment can have")
        if path in files:
            raise Unreadable(f"its {PATHS} lists {path[:200]!r} twice")
        size, sha256 = row.get("size_in_bytes"), row.get("sha256")
        files[path] = PackagedFile(
            path,
            size if isinstance(size, int) and size > 0 else 0,
            sha256 if isinstance(sha256, str) and _SHA256.fullmatch(sha256) else "",
            row.get("path_type") == "softlink",
        )
    listed = tuple(files[path] for path in sorted(files))
    return PackageInfo(name, version, build, listed)


def _is_path(path: str) -> bool:
    """Return True for a plain path of Unicode that may be installed."""
    is_plain = len(path) <= _LONGEST_PATH and safe_path(path) == path
    return is_plain and not path.startswith(_INFO) and not _SURROGATE.search(path)


def _parse(data: Mapping[str, bytes], name: str) -> Mapping[str, object]:
    text = data.get(name)
    if text is None:
        raise Unreadable(f"it has no {name}")
    # Each of these makes an object, most of them of 50 bytes and more.
    if sum(map(text.count, (b"{", b"[", b","))) > _MOST_VALUES:
        raise Unreadable(f"its {name} lists more than {MOST_FILES} files")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"its {name} is not JSON") from error
    if not isinstance(document, dict):
        raise Unreadable(f"its {name} is not a table")
    return document


def find_members(blob: Slice, filename: str, spool: Spool) -> dict[str, TarMember]:
    """Return the members of a package by name, from its one archive or its two.

    The ending of `filename` is its format, as for conda. Raises `Unreadable` for damage and bombs.
    """
    archives = _find_archives(blob, ("info-", "pkg-")) if filename.endswith(_ZIP) else [blob]
    found: dict[str, TarMember] = {}
    for archive in archives:
        for number, member in enumerate(members(spool.store(_unpack(archive)))):
            if number == MOST_FILES:
                raise Unreadable(f"it has more than {MOST_FILES} members")
            name = member.name.removeprefix("./")
            _check_once(name, found)
            original = found.get(member.target) if member.kind == "hardlink" else None
            found[name] = original or member
    return found


def _check_once(name: str, found: Collection[str]) -> None:
    if name in (INDEX, PATHS) and name in found:
        raise Unreadable(f"it has {name} twice")


def _find_info(archive: Slice, *, is_alone: bool) -> Mapping[str, bytes]:
    """Return `index.json` and `paths.json` of a compressed archive.

    One that has all files of the package, `is_alone`, is only read up to these two.
    """
    forward = ForwardSource(_bound_beginning(_unpack(archive)))
    found: dict[str, bytes] = {}
    for number, member in enumerate(members(Slice(forward, 0, ENDLESS))):
        if number == MOST_FILES:
            raise Unreadable(f"it has more than {MOST_FILES} members")
        name = member.name.removeprefix("./")
        if name in (INDEX, PATHS):
            _check_once(name, found)
            found[name] = _read_json(member)
        if is_alone and len(found) == 2:
            break
    return found


def _bound_beginning(chunks: Iterator[bytes]) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > _LARGEST_BEGINNING:
            most = _LARGEST_BEGINNING >> 20
            raise Unreadable(f"it has no {INDEX} and {PATHS} within its first {most} MiB")
        yield chunk


def _read_json(member: TarMember) -> bytes:
    if member.data is None or member.data.size > LARGEST_INFO:
        raise Unreadable(f"its {member.name} is no file, or has more than {LARGEST_INFO} bytes")
    return b"".join(member.data.chunks())


def _find_archives(blob: Slice, begins: tuple[str, ...]) -> list[Slice]:
    """Return the archives in a `.conda` whose names begin so."""
    with WheelTree(blob, located=str) as tree:
        placed = [
            (entry, tree.place(entry.name)[1])
            for entry in tree.entries
            if entry.name.endswith(".tar.zst") and entry.name.startswith(begins)
        ]
    if any(entry.compressed != entry.size for entry, _ in placed):
        raise Unreadable("its archives are compressed twice")
    if not placed:
        raise Unreadable(f"it has no archive {begins[0]}*.tar.zst")
    return [Slice(blob, start, entry.size) for entry, start in placed]


def _unpack(archive: Slice) -> Iterator[bytes]:
    if archive.read(0, 3) != b"BZh":
        yield from iter_decompressed(archive)
        return
    stream = StreamDecompressor(SliceReader(archive), bz2.BZ2Decompressor)
    most = INFLATION_ALLOWANCE + MAX_INFLATION * archive.size
    limit = f"{MAX_INFLATION} times its size: a bomb"
    yield from BoundedStream(stream, most, limit, (EOFError, OSError, ValueError))
