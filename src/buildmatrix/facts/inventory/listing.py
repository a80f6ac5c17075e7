"""A tree walked once, for lookups by name and through links."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from buildmatrix.facts.elf.model import SUFFIXES
from buildmatrix.facts.inventory.model import Unread
from buildmatrix.facts.trees.base import File, Symlink, Tree, defect, reason


def readable(name: str) -> str:
    r"""Return `name` as valid Unicode: bytes of a file name that are not UTF-8 become `\xNN`."""
    if name.isascii():
        return name
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def distribution_name(name: str) -> str:
    """Return the normalized name of a distribution (PEP 503); those of npm are as written."""
    return name if ":" in name else re.sub(r"[-_.]+", "-", name).lower()


# Paths


#: Links followed per lookup, as in the kernel (path_resolution(7)).
MOST_LINKS = 40
#: Folders with a remembered real path; hostile files can ask for any number.
MOST_REMEMBERED = 100_000


class LinkedPaths:
    """The symbolic links of a tree over its files.

    Folders need not be known: a component that is not a link counts as a folder, and `files`
    decides in the end if the result exists.
    """

    def __init__(self, files: Container[str], links: Mapping[str, str]) -> None:
        self._files = files
        self._links = links
        self._folders: dict[str, str | None] = {}

    def file(self, path: str) -> str | None:
        """Return the file that `path` leads to, or None. Absolute paths start at the root."""
        folder, _, name = path.rpartition("/")
        resolved = self.folder(folder)
        if resolved is None:
            return None
        inside = f"{resolved}/{name}" if resolved else name
        if inside in self._links:
            followed = follow_links(inside, self._links.get)
            return followed if followed is not None and followed in self._files else None
        return inside if inside in self._files else None

    def folder(self, path: str) -> str | None:
        """Resolve `path` without links, `.` and `..`; the root is empty; None for a loop."""
        if path in self._folders:
            return self._folders[path]
        resolved = follow_links(path, self._links.get)
        if len(self._folders) < MOST_REMEMBERED:
            self._folders[path] = resolved
        return resolved


def follow_links(path: str, target_of: Callable[[str], str | None]) -> str | None:
    """Resolve `path` without links, `.` and `..`; the root is empty; None for a loop.

    `target_of` returns the target of a link.
    """
    components: list[str] = []
    ahead = path.split("/")[::-1]
    passed = 0
    while ahead:
        name = ahead.pop()
        if name in ("", "."):
            continue
        if name == "..":
            # The parent of the root is the root.
            del components[-1:]
            continue
        components.append(name)
        target = target_of("/".join(components))
        if target is None:
            continue
        passed += 1
        if passed > MOST_LINKS:
            return None
        if target.startswith("/"):
            components.clear()
        else:
            components.pop()
        ahead.extend(target.split("/")[::-1])
    return "/".join(components)


# Tree


Result = TypeVar("Result")


@dataclass(slots=True)
class RecordedLookups:
    """Lookups of readers in a tree, beside file contents; see `fleet.stacks`."""

    #: Every file and link, including unreadable ones.
    names: set[str] = field(default_factory=set)
    #: Files and folders that were looked up and do not exist.
    absent: set[str] = field(default_factory=set)
    #: Folders whose names were listed; folders with all files below them listed.
    listed: set[str] = field(default_factory=set)
    below: set[str] = field(default_factory=set)


class _WatchedFiles(dict[str, File]):
    """Files, with a record of lookups that found nothing."""

    def __init__(self, files: Mapping[str, File], absent: set[str]) -> None:
        super().__init__(files)
        self._absent = absent

    def __contains__(self, path: object) -> bool:
        is_there = super().__contains__(path)
        if not is_there and isinstance(path, str):
            self._absent.add(path)
        return is_there


class Listing:
    """Files and links of `tree` by readable path, and all paths that could not be read so far.

    Lookups are recorded in `asked`. Raises OSError if the root itself cannot be listed.
    """

    def __init__(self, tree: Tree, asked: RecordedLookups | None = None) -> None:
        self.tree = tree
        self._asked = asked
        self.files: dict[str, File] = {}
        #: Symbolic links to their targets.
        self.links: dict[str, str] = {}
        self.unread: list[Unread] = []
        self.bytes_read = 0
        for entry in tree.walk():
            path = readable(entry.path)
            if asked is not None:
                asked.names.add(path)
            if path in self.files or path in self.links:
                self.note(path, "another name of the tree reads the same; this one was left out")
            elif isinstance(entry, File):
                self.files[path] = entry
            elif isinstance(entry, Symlink):
                self.links[path] = readable(entry.target)
            else:
                self.note(path, entry.why)
        if asked is not None:
            self.files = _WatchedFiles(self.files, asked.absent)
        self.paths = LinkedPaths(self.files, self.links)

    @cached_property
    def _names(self) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {}
        for path in sorted((*self.files, *self.links)):
            folder, _, name = path.rpartition("/")
            names.setdefault(folder, []).append(name)
        return names

    def names_in(self, folder: str) -> list[str]:
        """Return the names in `folder`, through links, sorted."""
        resolved = self.paths.folder(folder)
        if self._asked is not None and resolved is not None:
            self._asked.listed.add(resolved)
        return [] if resolved is None else self._names.get(resolved, [])

    @cached_property
    def _folders(self) -> set[str]:
        return folders_above((*self.files, *self.links))

    def has_folder(self, path: str) -> bool:
        """True if a file or a link is below `path`, as spelled."""
        is_there = path in self._folders
        if self._asked is not None and not is_there:
            self._asked.absent.add(path)
        return is_there

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self.files)

    def below(self, folder: str) -> list[str]:
        """Return the paths of all files below `folder`, sorted."""
        if self._asked is not None:
            self._asked.below.add(folder)
        # "0" is what follows "/".
        first, end = (bisect_left(self._sorted, f"{folder}{last}") for last in "/0")
        return self._sorted[first:end]

    def note(self, path: str, why: str) -> None:
        """Record that `path` could not be read, and why."""
        self.unread.append(Unread(path, why))

    def attempt(self, path: str, work: Callable[[], Result], otherwise: Result) -> Result:
        """Return the result of `work` on `path`; on failure, note it and return `otherwise`.

        The rest of the tree is read whatever exceptions hostile bytes cause.
        """
        try:
            return work()
        except Exception as error:
            self.note(path, defect(error))
            return otherwise

    def read(self, path: str, limit: int) -> bytes | None:
        """Read a whole file of at most `limit` bytes; None, with a note, if that fails."""
        try:
            data = self.tree.read_bytes(self.files[path].path, limit)
        except OSError as error:
            self.note(path, reason(error))
            return None
        self.bytes_read += len(data)
        return data

    def read_linked(self, path: str, limit: int) -> bytes | None:
        """Read the file that `path` leads to, as `read` does; None if there is none."""
        place = self.paths.file(path)
        return None if place is None else self.read(place, limit)


def folders_above(paths: Iterable[str]) -> set[str]:
    """Return every folder above one of `paths`, without the root."""
    folders: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders


#: Bytes of the shortest mark that identifies a file.
_SHORTEST = 4
#: Bytes of the shortest ELF file that links anything.
_SHORTEST_BINARY = 256
_LIBRARY = re.compile(r"\.so(\.|$)")
#: Suffixes of further accelerator files (`facts.binaries.devicefile`).
_BINARY = SUFFIXES | {"a", "o", "bc", "engine", "bin", "dat"}
#: Suffixes of files that are never Linux binaries and that no rule examines.
_HARMLESS_WORDS = """
    pyi pyx pxd pxi pyc typed pth c cc cpp cxx cu cuh h hh hpp hxx inl inc ipp tpp tcc def td cl f
    f90 s asm m mm metal rs go java js mjs cjs ts tsx jsx map css scss less html htm xhtml xml xsd
    xsl xslt dtd svg tex rst md txt json jsonl json5 yaml yml toml ini cfg conf csv tsv sql graphql
    jl proto fbs thrift ipynb png jpg jpeg gif ico bmp webp tif tiff pdf ps eps afm pfb ttf otf woff
    woff2 eot wav mp3 ogg flac mp4 mo po pot pem crt cer key gz bz2 xz zst zip tar npy npz mat nc h5
    hdf5 parquet feather arrow pkl pickle joblib pt pth onnx safetensors gguf dll exe dylib lib
    pdb ilk exp bat cmd ps1 sh bash zsh fish csh cmake pc la am ac m4 in mk tmpl tpl j2 jinja mako
    template license licence rules modulemap qml qss ui qm icns plist gitignore stub
    class kt kotlin_metadata kotlin_module kotlin_builtins scala clj groovy properties mf sf jnilib
"""
_HARMLESS = frozenset(_HARMLESS_WORDS.split())
#: Bytes of an archive that must not stay unopened without a note.
LARGE_CONTAINER = 1 << 20
#: Smaller archives decide nothing.
SMALLEST_CONTAINER = 256
#: Archives and packages that may hold binaries. Data archives, as written by torch and NumPy, do
#: not.
_CONTAINERS = frozenset(
    {"zip", "jar", "war", "aar", "whl", "egg", "pex", "pyz", "pt2", "conda", "nupkg", "deb", "rpm",
     "tar", "tgz", "txz", "tbz2", "gz", "xz", "bz2", "zst", "7z", "run", "squashfs"}
)  # fmt: skip
#: Suffixes that rule a file out, whatever the rest of its name.
_NEVER = _HARMLESS - _CONTAINERS - _BINARY - {"pyc"}
#: Text files without a suffix.
_TEXT = re.compile(
    r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|AUTHORS|README|CHANGES|CHANGELOG|CONTRIBUTORS|VERSION"
    r"|THANKS|NEWS|TODO|Makefile|Dockerfile|Kconfig|BUILD|WORKSPACE|METADATA|RECORD|WHEEL)",
    re.IGNORECASE,
)


def may_be_container(path: str) -> bool:
    """True if the file could be an archive with binaries, by its name."""
    return path.rpartition(".")[2].lower() in _CONTAINERS


#: Smaller files decide nothing unless their name identifies them.
LEAST = 64 << 10


def may_hide(path: str, size: int) -> bool:
    """True if only the first bytes would show that the file is a binary.

    A loader ignores names: an ELF file named `model.onnx` or `README` still is one. So is one named
    `x.py`, but Python files are read for their imports first.
    """
    return size >= _SHORTEST_BINARY and not path.endswith(".py") and not may_matter(path, size)


def may_matter(path: str, size: int) -> bool:
    """True if the file could be a binary, device code, or Python, by its name."""
    if size < _SHORTEST:
        return False
    folder, _, name = path.rpartition("/")
    if name.rpartition(".")[2] in _NEVER and ".so." not in name:
        return False  # Nine of ten names in a wheel with headers, which may have 10,000.
    if _LIBRARY.search(name) or name.endswith(".py"):
        return True
    parts = folder.split("/")
    if name.endswith(".pyc"):
        return "__pycache__" not in parts
    if parts[0].endswith((".dist-info", ".egg-info")):
        return False
    stem, dot, suffix = name.rpartition(".")
    if not dot or not stem:
        # The C++ standard library has headers without a suffix.
        return not (_TEXT.match(name) or "include" in parts or name.startswith("."))
    if may_be_container(path):
        return size >= SMALLEST_CONTAINER
    return suffix.lower() in _BINARY or suffix.lower() not in _HARMLESS
