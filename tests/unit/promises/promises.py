"""What the readers of foreign bytes promise whatever they are given; for the fuzzer and the tests.

Each function reads `data` in every way and raises what no reader may raise. Those of `elf` have
promises of their own (tests/unit/facts/elf/elf_promises.py).
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from buildmatrix.base.errors import BuildmatrixError, UndecidedError
from buildmatrix.facts.inventory.collect import collect
from buildmatrix.facts.inventory.model import encode
from buildmatrix.facts.loader import resolve
from buildmatrix.facts.trees.base import File, RandomAccess, Symlink, Tree, Trouble
from buildmatrix.facts.trees.wheel import WheelTree
from buildmatrix.images.store import decode
from buildmatrix.locks.index.client import read_page
from buildmatrix.locks.lines import logical_lines
from buildmatrix.locks.lock_file import open_lock
from buildmatrix.locks.poetrylock import read as read_poetry
from buildmatrix.locks.pylock import entries_of
from buildmatrix.locks.selection import LockSelection
from buildmatrix.locks.uvlock import read as read_uv

#: Bytes of one read; an input of the fuzzer inflates to 1032 times its size at most.
_WINDOW = 1 << 16
#: Where the parts of an input lie in the tree that they make.
PLACES = (
    "lib/python3.11/site-packages/a/__init__.py",
    "lib/python3.11/site-packages/a/b.py",
    "lib/python3.11/site-packages/a-1.dist-info/METADATA",
    "lib/python3.11/site-packages/a-1.dist-info/RECORD",
    "lib/python3.11/site-packages/a-1.dist-info/WHEEL",
    "lib/python3.11/site-packages/a-1.dist-info/direct_url.json",
    "lib/python3.11/site-packages/a-1.dist-info/entry_points.txt",
    "lib/python3.11/site-packages/a-1.dist-info/sboms/auditwheel.cdx.json",
    "lib/python3.11/site-packages/a.pth",
    "pyvenv.cfg",
    "etc/ld.so.cache",
    "etc/ld.so.conf",
    "etc/ld.so.preload",
    "etc/ld-musl-x86_64.path",
    "var/lib/dpkg/status",
    "lib/apk/db/installed",
    "etc/os-release",
    "lib/x86_64-linux-gnu/liba.so.1",
    "usr/lib/sysimage/rpm/Packages.db",
    "var/lib/rpm/Packages",
)
#: Stands between two parts of an input: it is in no other format.
BETWEEN = b"\xff\x00--\xff"


class Memory:
    """Bytes as a `zipdirectory.Bytes`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.bytes_read = 0

    @property
    def size(self) -> int:
        return len(self._data)

    def read(self, offset: int, length: int) -> bytes:
        assert 0 <= offset < 1 << 63, "pread takes no other offset"
        assert 0 <= length <= 1 << 28, "a claim of the file sets the memory that is used"
        data = self._data[offset : offset + length]
        self.bytes_read += len(data)
        return data


def wheel(data: bytes) -> None:
    """A ZIP archive: it is refused, or its members are the ones that Python's zipfile unpacks."""
    try:
        tree = WheelTree(Memory(data))
    except OSError:
        return
    with tree:
        entries = list(tree.walk())
        files = [one for one in entries if isinstance(one, File)]
        for file in files:
            parts = file.path.split("/")
            assert not {"", ".", ".."} & set(parts), "a name that leads out of the wheel"
        doubtful = {one.path for one in entries if isinstance(one, Trouble)}
        unpacked = _unpacked(data)
        for file in files[:20]:
            ours = _read(tree, file)
            if ours is None or file.path in doubtful:
                continue
            assert len(ours) == file.size
            theirs = unpacked(file.path)
            assert theirs in (None, ours), "an installer would write other bytes"


def _read(tree: Tree, file: File) -> bytes | None:
    """The bytes of a file in order, and once more from its middle on; None for no answer."""
    if file.size > 1 << 24:
        return None
    try:
        with tree.open(file.path) as source:
            pieces = []
            for at in range(0, file.size, _WINDOW):
                pieces.append(source.read(at, _WINDOW))
            data = b"".join(pieces)
            middle = file.size // 2
            assert source.read(middle, 100) == data[middle : middle + 100]
            return data
    except OSError:
        return None


def _unpacked(data: bytes) -> Callable[[str], bytes | None]:
    """What zipfile has under the name of a member."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, RuntimeError):
        return lambda path: None

    def read(path: str) -> bytes | None:
        broken = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, ValueError)
        with suppress(*broken, KeyError, OSError, RuntimeError, OverflowError):
            return archive.read(path)
        return None

    return read


def page(data: bytes) -> None:
    """A page of an index, as JSON and as HTML: it is refused, or has names and addresses only."""
    for kind in ("application/vnd.pypi.simple.v1+json", "text/html"):
        try:
            files = read_page(data, kind, "https://example.com/simple/a/", "the page")
        except UndecidedError as error:
            assert error.message
            continue
        for file in files:
            assert "/" not in file.filename and file.filename.isprintable()
            assert file.url.startswith(("https:", "http:"))


def lock(data: bytes, ask: LockSelection) -> None:
    """A lock: it is refused with words, or read. `ask.path` is a file that may be written."""
    with suppress(BuildmatrixError):
        entries_of(data, ask.path, "pylock.toml")
    ask.path.write_bytes(data)
    for read in (read_uv, read_poetry):
        with suppress(BuildmatrixError):
            read(open_lock(ask, ""))
    list(logical_lines(data.decode("utf-8", "replace")))


class MemoryTree(Tree):
    """A few files in memory."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def walk(self) -> Iterator[File | Symlink | Trouble]:
        for path, data in sorted(self._files.items()):
            yield File(path, len(data))

    @contextmanager
    def open(self, path: str) -> Iterator[RandomAccess]:
        yield Memory(self._files[path])


def tree(data: bytes) -> None:
    """Files of an image: there is an inventory, and what was written of it is read back."""
    parts = dict(zip(PLACES, data.split(BETWEEN), strict=False))
    inventory = collect(MemoryTree({path: part for path, part in parts.items() if part}))
    resolve(inventory)
    encoded = encode(inventory)
    assert encode(decode(encoded)) == encoded
