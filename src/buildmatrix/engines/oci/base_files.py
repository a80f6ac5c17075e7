"""Facts that a build needs from its base image: all paths, and the content of a few files.

Each layer is read once, sequentially, and its notes are cached by digest.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

import msgspec
from msgspec import Struct

from buildmatrix.base.errors import UndecidedError
from buildmatrix.base.threads import prepare_type
from buildmatrix.facts.inventory.listing import follow_links
from buildmatrix.facts.trees.archive import (
    CHUNK,
    BytesSource,
    OpenFile,
    Slice,
    iter_decompressed,
    safe_path,
)
from buildmatrix.facts.trees.archive_layers import MAX_LINKS, LayeredTree, MergedEntry
from buildmatrix.facts.trees.base import Unreadable
from buildmatrix.facts.trees.decompression import ENDLESS, ForwardSource
from buildmatrix.facts.trees.tar import Attributes, Kind, TarMember, members
from buildmatrix.images.documents import Descriptor
from buildmatrix.images.layers import LayerEntry, parent_folders
from buildmatrix.images.layout import OciLayout
from buildmatrix.images.store.cache import DAY, Cache, Store, source_digest

#: Files with stored content, and folders of such files.
_KEPT: Final = frozenset(
    {
        *(f"etc/{name}" for name in ("passwd", "group", "shadow", "gshadow", "subuid", "subgid")),
        "etc/login.defs",
        "etc/default/useradd",
        "etc/os-release",
        "usr/lib/os-release",
        "var/lib/dpkg/status",
        "var/lib/dpkg/diversions",
        "var/lib/dpkg/statoverride",
        "var/lib/apt/extended_states",
        "etc/dpkg/dpkg.cfg",
    }
)
_KEPT_BELOW: Final = (
    "etc/skel/",
    "etc/apt/",
    "etc/dpkg/dpkg.cfg.d/",
    "usr/share/keyrings/",
    "var/lib/dpkg/triggers/",
)
#: Maximum bytes of one such file, and of all in a layer.
_LARGEST: Final = 16 << 20
_MOST: Final = 64 << 20
#: Interpreters and their libraries, whose version strings are stored.
_PYTHON = re.compile(r"(?:lib)?python(3\.\d+)(?:\.so[.\d]*)?")
_VERSION = rb"\x00(%s\.[0-9]{1,3}(?:(?:a|b|rc)[0-9]+)?\+?)\x00"
_LARGEST_PYTHON: Final = 256 << 20
#: PATH of containers if the image has none (moby, `DefaultPathEnv`).
DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class NotedMember(msgspec.Struct, frozen=True, array_like=True):
    """An entry of a layer."""

    #: Raw bytes, as for the target of a link. Neither has to be text.
    name: bytes
    kind: Kind
    attributes: Attributes
    target: bytes = b""
    #: Stored content of a file; for an interpreter, its version strings.
    content: bytes | None = None


class LayerNotes(msgspec.Struct, frozen=True):
    """Facts of one layer."""

    #: Digest of its uncompressed bytes.
    diff_id: str
    members: list[NotedMember]


#: Created here, by one thread: msgspec 0.22 crashes if several first meet a type at once.
_NOTES: Final = msgspec.msgpack.Decoder(prepare_type(LayerNotes))


class BasePython(Struct, frozen=True):
    """A Python of the base, as found by `uv venv`."""

    #: Absolute path, as found by `command -v`; its folder is `home` in `pyvenv.cfg`.
    executable: str
    #: `3.11.2`
    version: str

    @property
    def home(self) -> str:
        """Folder of the executable."""
        return posixpath.dirname(self.executable)


def notes_store(cache: Cache) -> Store:
    """Return the store of notes."""
    # The notes depend on this module and on the reader in `trees`.
    version = f"4 {source_digest('facts/trees')}"
    return cache.store("base-layers", version, limit=1 << 30, age=90 * DAY, by_use=True)


def read_layer(layout: OciLayout, descriptor: Descriptor, store: Store) -> LayerNotes:
    """Return the notes of a layer with its blob in `layout`. Raises UndecidedError."""
    notes = store.load(descriptor.digest, _NOTES)
    if notes is not None:
        return notes
    try:
        with layout.open(descriptor) as file:
            notes = _read(Slice(OpenFile(file.fileno()), 0, descriptor.size))
    except Unreadable as error:
        raise UndecidedError(f"the layer {descriptor.digest} cannot be read: {error}") from error
    store.save(descriptor.digest, notes)
    return notes


def _read(blob: Slice) -> LayerNotes:
    hasher = hashlib.sha256()
    source = ForwardSource(_update_hash(iter_decompressed(blob), hasher))
    notes: list[NotedMember] = []
    room = _MOST
    for member in members(Slice(source, 0, ENDLESS)):
        content = _read_content(member, room)
        room -= len(content or b"")
        attributes = member.attributes or Attributes(0o644)
        name, target = os.fsencode(member.name), os.fsencode(member.target)
        notes.append(NotedMember(name, member.kind, attributes, target, content))
    while source.read(source.bytes_read, CHUNK):
        pass  # what follows the end mark belongs to the digest
    return LayerNotes(f"sha256:{hasher.hexdigest()}", notes)


def _update_hash(chunks: Iterator[bytes], hasher: hashlib._Hash) -> Iterator[bytes]:
    for chunk in chunks:
        hasher.update(chunk)
        yield chunk


def _read_content(member: TarMember, room: int) -> bytes | None:
    if member.data is None:
        return None
    path = safe_path(member.name)
    if path is None:
        return None
    size = member.data.size
    if path in _KEPT or path.startswith(_KEPT_BELOW):
        return member.data.read(0, size) if size <= min(room, _LARGEST) else None
    match = _PYTHON.fullmatch(posixpath.basename(path))
    if match is None or size > _LARGEST_PYTHON:
        return None
    pattern = re.compile(_VERSION % re.escape(match[1]).encode())
    data = b"".join(member.data.read(at, CHUNK) for at in range(0, size, CHUNK))
    return b" ".join(sorted(set(pattern.findall(data))))


class BaseFiles:
    """Merged layers of a base, lowest first. Raises UndecidedError."""

    def __init__(self, layers: Sequence[LayerNotes]) -> None:
        try:
            self._tree = LayeredTree([map(_make_member, layer.members) for layer in layers])
            #: Path relative to the root → entry; the root itself is `""`.
            self.entries: dict[str, MergedEntry] = {
                entry.path: entry for entry in self._tree.entries()
            }
        except Unreadable as error:
            raise UndecidedError(f"the layers of the base cannot be merged: {error}") from error

    def resolve(self, path: str) -> str | None:
        """Return the real path of `path`, relative to the root; None if it does not exist."""
        place = self.resolve_new(path)
        return place if place is not None and place in self.entries else None

    def resolve_new(self, path: str) -> str | None:
        """Return the real path of a new file `path`, relative to the root.

        None for circular links, and if a parent is a file.
        """
        place = follow_links(path, self._find_target)
        entries = map(self.entries.get, parent_folders(place or ""))
        return None if any(entry and entry.kind == "file" for entry in entries) else place

    def _find_target(self, path: str) -> str | None:
        entry = self.entries.get(path)
        return entry.target if entry is not None and entry.kind == "symlink" else None

    def add(self, entry: LayerEntry) -> None:
        """Add a file of a layer on top of the base."""
        if entry.kind != "hardlink":
            attributes = Attributes(entry.mode, entry.user, entry.group)
            self.entries[entry.path] = MergedEntry(entry.path, entry.kind, attributes, entry.target)

    def entry(self, path: str) -> MergedEntry | None:
        """Return the entry at `path`, following links; None if there is none."""
        place = self.resolve(path)
        return None if place is None else self.entries.get(place)

    def read(self, path: str) -> bytes | None:
        """Return the content of a stored file; None if it does not exist.

        Raises UndecidedError if its content was not stored: it is too large, or a hard link to
        another name.
        """
        place = self.resolve(path)
        entry = None if place is None else self.entries.get(place)
        if place is None or entry is None or entry.kind != "file":
            return None
        content = self._tree.data(place)
        if content is None:
            raise UndecidedError(
                f"/{path} of the base image: it is too large, or a link to a file that is not read"
            )
        return content.read(0, content.size)

    @cached_property
    def interpreters(self) -> dict[str, str]:
        """Return real path of an interpreter or its library → its only version string."""
        newest = {}
        for path, entry in self.entries.items():
            if entry.kind == "file" and _PYTHON.fullmatch(posixpath.basename(path)):
                try:
                    versions = (self.read(path) or b"").decode().split()
                except UndecidedError:
                    continue  # `_find_version` says so where it is the one that counts
                if len(versions) == 1:
                    newest[path] = versions[0]
        return newest

    def python(self, minor: str, path: str) -> BasePython | None:
        """Find Python `minor` (`3.11`) on the search path `path`; None if there is none.

        Raises UndecidedError if its patch release is unknown.
        """
        for folder in path.split(":"):
            executable = posixpath.join("/", folder, f"python{minor}")
            entry = self.entry(executable)
            if entry is not None and entry.kind == "file" and entry.attributes.mode & 0o111:
                executable = self._find_base_python(posixpath.normpath(executable), minor)
                return BasePython(executable, self._find_version(executable, minor))
        return None

    def _find_base_python(self, executable: str, minor: str) -> str:
        """Return the path for an environment: the first one below a folder with the library.

        Source: uv-python, `find_base_python` in crates/uv-python/src/interpreter.rs.
        """
        name = executable
        for _ in range(MAX_LINKS):
            above = posixpath.dirname(name)
            while True:
                if self.entry(posixpath.join(above, f"lib/python{minor}/os.py")) is not None:
                    return name
                if above == "/":
                    break
                above = posixpath.dirname(above)
            entry = self.entries.get(name.strip("/"))
            if entry is None or entry.kind != "symlink":
                break
            name = posixpath.normpath(posixpath.join(posixpath.dirname(name), entry.target))
        return f"/{self.resolve(executable)}"

    def _find_version(self, executable: str, minor: str) -> str:
        real = self.resolve(executable) or ""
        if real in self.interpreters:
            return self.interpreters[real]
        prefix = posixpath.dirname(posixpath.dirname(real))
        versions = {
            version
            for path, version in self.interpreters.items()
            if posixpath.basename(path).startswith(f"libpython{minor}.so")
            and path.startswith(f"{prefix}/" if prefix else "")
        }
        if len(versions) != 1:
            raise UndecidedError(
                f"{executable} of the base image does not say which release of Python {minor} it is"
            )
        return versions.pop()


def _make_member(noted: NotedMember) -> TarMember:
    content = noted.content
    data = None if content is None else Slice(BytesSource(content), 0, len(content))
    name, target = os.fsdecode(noted.name), os.fsdecode(noted.target)
    return TarMember(name, noted.kind, data, target, noted.attributes)
