"""Facts of one file, and of the files nested in it, from a single read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

from buildmatrix.facts.binaries import devicefile
from buildmatrix.facts.binaries.reader import Malformed, read_elf
from buildmatrix.facts.elf.model import SUFFIXES, DeviceFile, Elf, strip_compression
from buildmatrix.facts.inventory.listing import LARGE_CONTAINER, LEAST, may_matter, readable
from buildmatrix.facts.python_imports.source import (
    LARGEST_SEARCHED,
    Outline,
    is_sourceless,
    make_compiled_outline,
    make_outline,
    make_startup_outline,
    runs_at_startup,
)
from buildmatrix.facts.python_imports.statements import Literals, has_literals, read_literals
from buildmatrix.facts.trees import containers, formats
from buildmatrix.facts.trees.archive import MAX_INFLATION, Slice
from buildmatrix.facts.trees.base import File, RandomAccess, Tree, defect, reason
from buildmatrix.facts.trees.containers import ContainerMember
from buildmatrix.facts.trees.formats import Format
from buildmatrix.facts.trees.zip_archive import Inflated

ELF_MAGIC = b"\x7fELF"
#: Size limit of a `.pth` file of `site`; torch checkpoints with this suffix are larger.
LARGEST_STARTUP = 1 << 20


@dataclass(frozen=True, slots=True)
class ReadBytes:
    """The bytes that were read of a file; see `facts.inventory.memory`."""

    #: Bytes of the file.
    size: int
    #: Offset and length of each read, in turn.
    places: tuple[int, ...]
    #: Message authentication code of the bytes.
    code: bytes


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Facts of one file's bytes: at most one of the first four is set.

    A program may have a container appended.
    """

    elf: Elf | None = None
    outline: Outline | None = None
    device: DeviceFile | None = None
    unread: str | None = None
    contents: NestedContents | None = None
    #: Reason why an unopened file may be relevant; see `ClosedFile.by`.
    closed: Literal["name", "bytes", "size"] | None = None
    #: For a file with an outline, named after the statements in it.
    stated: Literals | None = None
    #: SHA-256 of a Python file of at most `LARGEST_SEARCHED` bytes, in a scan with a memory.
    sha256: bytes | None = None
    #: For a binary, in a scan with a memory that recognizes it.
    sealed: ReadBytes | None = None
    #: Bytes read in this scan; 0 if recalled.
    bytes_read: int = 0


def open_container(tree: Tree, file: File, facts: FileFacts) -> FileFacts:
    """Return the `facts` of `file`, with its contents if it is a container."""
    try:
        with tree.open(file.path) as source:
            return add_contents(facts, source, file.path, file.size)
    except OSError as error:
        why = reason(error)
    except Exception as error:
        why = defect(error)
    kind = facts.contents.kind if facts.contents is not None else ""
    return replace(facts, contents=NestedContents(kind, closed=why))


def add_contents(facts: FileFacts, source: RandomAccess, path: str, size: int) -> FileFacts:
    """Add the contents to `facts`, if the file is a container not opened yet."""
    if facts.contents is None or facts.contents.waiting is None:
        return facts
    before = source.bytes_read
    contents = read_container(source, path, size, facts.contents.waiting)
    bytes_read = facts.bytes_read + source.bytes_read - before
    return replace(facts, contents=contents, bytes_read=bytes_read)


def inspect(tree: Tree, file: File) -> FileFacts:
    """Inspect `file` of `tree`; problems with its bytes are part of the result."""
    if file.size < len(ELF_MAGIC):
        return FileFacts()
    try:
        with tree.open(file.path) as source:
            return inspect_source(source, file.path, file.size)
    except OSError as error:
        return FileFacts(unread=reason(error))
    except Exception as error:
        return FileFacts(unread=defect(error))


def inspect_source(
    source: RandomAccess, path: str, size: int, *, nested: bool = False
) -> FileFacts:
    """Inspect the file at `path`, whose `size` bytes are in `source`. Raises OSError.

    The first bytes decide: a Python name counts only if the bytes are of no other format. An
    `Inflated` source is read until the file is known to be irrelevant, or to its end. A container
    is recognized, unless the file is itself `nested` in one; see `add_contents`.
    """
    text = source.read(0, min(size, LARGEST_SEARCHED)) if is_python(path) else b""
    head = text[: formats.HEAD] or source.read(0, formats.HEAD)
    if text and formats.is_text(head):
        return replace(_inspect_python(path, text, size), bytes_read=source.bytes_read)
    elf: Elf | None = None
    device: DeviceFile | None = None
    contents = None
    try:
        if not nested and not head.startswith(ELF_MAGIC):
            contents = detect_container(source, head, size, path)
        if contents is not None:
            pass
        elif devicefile.detect_kind(path, head) is not None:
            device = devicefile.read_device_file(source, size, path)
        elif head.startswith(ELF_MAGIC):
            elf = read_elf(source, size)
            if elf is not None and not nested:
                contents = detect_appended_container(source, elf, size)
    except Malformed as error:
        return FileFacts(unread=error.reason, bytes_read=source.bytes_read)
    if isinstance(source, Inflated) and (elf or device):
        source.finish()
    if runs_at_startup(path) and elf is None and device is None and size <= LARGEST_STARTUP:
        lines = make_startup_outline(source.read(0, size)) if contents is None else None
        return FileFacts(outline=lines, contents=contents, bytes_read=source.bytes_read)
    if text and elf is None and device is None and not head.startswith(ELF_MAGIC):
        facts = _inspect_python(path, text, size)
        return replace(facts, contents=contents, bytes_read=source.bytes_read)
    return FileFacts(elf=elf, device=device, contents=contents, bytes_read=source.bytes_read)


def is_python(path: str) -> bool:
    """True if Python imports a file of this name as a module, in source or bytecode."""
    return path.endswith(".py") or is_sourceless(path)


def _inspect_python(path: str, text: bytes, size: int) -> FileFacts:
    """Return the facts of the Python file at `path` that begins with `text`."""
    if is_sourceless(path):
        return FileFacts(outline=make_compiled_outline(text))
    found = make_outline(text)
    if size > len(text):
        # The unread rest may load a library.
        found = replace(found, loads=True)
    return FileFacts(
        outline=found, stated=read_literals(text) if has_literals(path, size) else None
    )


# Containers, one level down.
#
# An installer, a Java runtime or a program unpacks them later, so their contents ship with the
# tree. Most are data archives, of which only the list of members is read.


#: Separator of the path of a container and the name of a file in it, as in Java's jar URLs.
SEPARATOR = "!/"
#: Files examined in one container; `MOST_KEPT` limits its binaries.
MOST_EXAMINED = 20_000
#: Files of one container. Each one beyond the first thousand must take this many bytes of it: a
#: container of 1 MB may unpack to millions of names.
MOST_FILES = 250_000
MANY_FILES = 1_000
_BYTES_PER_FILE = 64
MOST_KEPT = 5_000
#: Containers opened per tree.
MOST_CONTAINERS = 20_000
#: Bytes of one container that must be inflated from its start, and of all such in one tree.
LARGEST_STREAM = 512 << 20
MOST_STREAMED = 1 << 30
#: Every container may inflate to this size.
SMALL_ALLOWANCE = 1 << 20
#: Unopened inner containers that are named.
_MOST_NAMED = 3
#: No binary is smaller.
_SMALLEST = 256
#: ELF type of relocatable objects, which are for linkers: kernel modules, mostly.
_REL = b"\1\0"


@dataclass(frozen=True, slots=True)
class NestedFile:
    """A binary or device file in a container."""

    #: Name in the container.
    name: str
    size: int
    #: Bytes in the container, if packed by itself.
    packed: int | None
    elf: Elf | None = None
    device: DeviceFile | None = None


@dataclass(frozen=True, slots=True)
class NestedContents:
    """Contents of a container, as far as known."""

    #: `zip`, `wheel`, `conda`, `deb`, `tar`, `compressed`, `script`, `pyinstaller`, `rpm`, ...
    kind: str
    #: Number of files.
    files: int = 0
    members: tuple[NestedFile, ...] = ()
    #: Reason why it was not opened, or not completely; None if everything relevant was read.
    closed: str | None = None
    #: Format to open it with, if recognized and not decided yet: the amount opened per tree is
    #: limited.
    waiting: Format | None = None
    #: True if it was opened anyway: the bytes of a layer pass by once.
    is_ahead: bool = False


def detect_container(
    source: RandomAccess, head: bytes, size: int, path: str = ""
) -> NestedContents | None:
    """Recognize the container in `source` by its first bytes; None for irrelevant files.

    A compressed file counts if it holds an archive, a program, or device code, and if its contents
    cannot be seen. Device code in text (`kernel.ptx.zst`) is recognized by its name.
    """
    format = formats.detect_format(head, size)
    if format is None and size >= LARGE_CONTAINER:
        format = formats.detect_image_format(source)
    if format is None:
        return None
    if format in ("compressed", "lz4"):
        inside = containers.decompress_head(source, head, size)
        if inside is not None and not _is_binary(strip_compression(path), inside):
            return None
        if inside is not None and inside.startswith(ELF_MAGIC) and inside[16:18] == _REL:
            return None
    return NestedContents(format, waiting=format)


def _is_binary(name: str, head: bytes) -> bool:
    """True if a file in a container is relevant, or holds files, by its first bytes."""
    return (
        head.startswith(ELF_MAGIC)
        or devicefile.detect_kind(name, head) is not None
        or formats.detect_format(head, 0) is not None
    )


def detect_appended_container(source: RandomAccess, elf: Elf, size: int) -> NestedContents | None:
    """Recognize the container appended to the program `elf`; None if there is none."""
    if elf.type not in ("exec", "dyn"):
        return None
    ends = [s.offset + s.size for s in elf.sections if not s.nobits]
    pydata = next((s.offset + s.size for s in elf.sections if s.name == "pydata"), None)
    if ends and pydata is None and size - max(ends) < containers.MAX_TABLES:
        return None
    format = containers.detect_appended(source, size, max(ends, default=size), pydata)
    return None if format is None else NestedContents(format, waiting=format)


def stream_cost(kind: str, size: int) -> int:
    """Return the cost to inflate all of a container, in bytes of gzip; 0 if not needed.

    LZ4 is inflated in Python, at 3 MB a second.
    """
    if kind == "lz4":
        return 32 * size
    return size if kind in ("deb", "rpm", "compressed", "script") else 0


def plan_opening(
    waiting: Mapping[str, tuple[int, NestedContents]],
) -> tuple[list[str], Mapping[str, NestedContents]]:
    """Choose the containers to open, and give reasons for the others.

    The choice depends only on sizes: of those that must be inflated, the smallest first.
    """
    opened: list[str] = []
    unopened: dict[str, NestedContents] = {}
    streamed = 0
    for path, (size, contents) in sorted(waiting.items(), key=lambda item: (item[1][0], item[0])):
        format = contents.waiting or contents.kind
        cost = stream_cost(format, size)
        if len(opened) == MOST_CONTAINERS:
            why = f"only {MOST_CONTAINERS} archives of one tree are opened"
        elif cost > LARGEST_STREAM:
            most = LARGEST_STREAM * size // cost
            why = f"{size} bytes that have to be inflated to know; {most} are read"
        elif streamed + cost > MOST_STREAMED:
            why = f"only {MOST_STREAMED} bytes of compressed archives are read in one tree"
        else:
            streamed += cost
            opened.append(path)
            continue
        unopened[path] = NestedContents(format, closed=why)
    return sorted(opened), unopened


def read_container(source: RandomAccess, path: str, size: int, format: Format) -> NestedContents:
    """Read the container at `path`, whose `size` bytes are in `source`.

    Problems are in `NestedContents.closed`. Time and memory are bounded for any input.
    """
    reader = _ContainerReader(format)
    most = SMALL_ALLOWANCE + MAX_INFLATION * size
    most_files = min(MOST_FILES, MANY_FILES + size // _BYTES_PER_FILE)
    try:
        for number, inner in enumerate(
            containers.members(Slice(source, 0, size), format, path, most)
        ):
            if number == most_files:
                reader.note_problem(f"only {most_files} of its files were read")
                break
            reader.add(inner)
    except OSError as error:
        reader.note_problem(reason(error))
    return reader.contents(size)


class _ContainerReader:
    """Collects the contents of one container."""

    def __init__(self, format: Format) -> None:
        self._kind: str = format
        self._files = 0
        self._inflated = 0
        self._looked_at = 0
        self._members: list[NestedFile] = []
        self._troubles: dict[str, None] = {}
        self._closed: list[str] = []

    def note_problem(self, why: str) -> None:
        """Record why something in it could not be read."""
        if len(self._troubles) < _MOST_NAMED:
            self._troubles.setdefault(why)

    def add(self, inner: ContainerMember) -> None:
        """Examine one file of the container."""
        self._files += 1
        self._inflated += inner.size
        name = readable(inner.name).lstrip("/")
        self._kind = _refine_kind(self._kind, name)
        if inner.size < _SMALLEST:
            return
        try:
            # The first bytes decide. Opening costs more, so it is done right away only if the name
            # says that the file may be relevant.
            is_named = may_matter(name, inner.size) and not name.endswith(".py")
            if not is_named and not _is_binary(name, inner.head()):
                return
            if self._looked_at == MOST_EXAMINED or len(self._members) == MOST_KEPT:
                self.note_problem(f"only {self._looked_at} of its files were read")
                return
            self._looked_at += 1
            with inner.open() as source:
                self._inspect(source, name, inner)
        except OSError as error:
            if _has_binary_name(name) or inner.size >= LARGE_CONTAINER:
                self.note_problem(f"{name}: {reason(error)}")

    def _inspect(self, source: RandomAccess, name: str, inner: ContainerMember) -> None:
        head = source.read(0, formats.HEAD)
        if head.startswith(ELF_MAGIC) or devicefile.detect_kind(name, head) is not None:
            facts = inspect_source(source, name, inner.size, nested=True)
            if facts.unread is not None:
                self.note_problem(f"{name}: {facts.unread}")
            elif facts.elf is not None or facts.device is not None:
                self._members.append(
                    NestedFile(name, inner.size, inner.packed, elf=facts.elf, device=facts.device)
                )
        elif inner.size >= LARGE_CONTAINER and self._may_hold_binaries(source, name, head, inner):
            self._closed.append(name)

    def _may_hold_binaries(
        self, source: RandomAccess, name: str, head: bytes, inner: ContainerMember
    ) -> bool:
        """True if a file of the container may itself hold binaries."""
        size = inner.size
        contents = detect_container(source, head, size)
        if contents is None:
            return False
        if self._kind == "conda" and name.startswith("pkg-") and inner.packed == size:
            return False  # The package in a .conda was opened.
        if contents.kind == "zip":
            archive = Slice(source, 0, size)
            return any(
                inner.size >= _SMALLEST and _has_binary_name(readable(inner.name))
                for inner in containers.members(archive, "zip", name, size)
            )
        return True

    def contents(self, size: int) -> NestedContents:
        """Return the contents of the container of `size` bytes, in name order.

        Files packed together get proportional shares of the container.
        """
        if self._inflated > size:
            part = size / self._inflated
            self._members = [
                replace(nested, packed=round(nested.size * part))
                if nested.packed is None
                else nested
                for nested in self._members
            ]
        if self._closed:
            names = ", ".join(self._closed[:_MOST_NAMED])
            more = len(self._closed) - _MOST_NAMED
            self._troubles.setdefault(
                f"archives inside of it were not opened: {names}"
                + (f" and {more} more" if more > 0 else "")
            )
        closed = "; ".join(self._troubles) or None
        members = tuple(sorted(self._members, key=lambda nested: nested.name))
        return NestedContents(self._kind, self._files, members, closed)


def _refine_kind(kind: str, name: str) -> str:
    """Return the kind of a container after seeing the file `name`, which identifies packages."""
    if kind == "zip" and name.endswith(".dist-info/WHEEL") and name.count("/") == 1:
        return "wheel"
    if kind == "zip" and name.startswith("pkg-") and name.endswith(".tar.zst"):
        return "conda"
    return "conda" if kind == "compressed" and name == "info/index.json" else kind


def detect_zip_kind(names: Iterable[str]) -> str:
    """Return the kind of a ZIP archive with files of these names."""
    return reduce(_refine_kind, names, "zip")


def find_tensors(names: Iterable[str]) -> frozenset[str]:
    """Return the tensor files of a ZIP archive, by the names that `torch.save` gives.

    A checkpoint has one folder with `data.pkl` and a file `data/NUMBER` for each tensor (PyTorch,
    `caffe2/serialize/inline_container.h`). Programs are not named by numbers.
    """
    every = tuple(names)
    top = every[0].partition("/")[0] if every else ""
    if f"{top}/data.pkl" not in every or not all(name.startswith(f"{top}/") for name in every):
        return frozenset()
    tensor = re.compile(rf"{re.escape(top)}/data/[0-9]+", re.ASCII)
    return frozenset(name for name in every if tensor.fullmatch(name))


def may_hold_binary(name: str, size: int) -> bool:
    """True if a file of a container may be relevant, by its name and size."""
    if name.endswith((".py", "/")) or size < _SMALLEST:
        return False
    return _has_binary_name(name) or (size >= LEAST and may_matter(name, size))


def _has_binary_name(name: str) -> bool:
    """True for the name of a library or of device code."""
    last = name.rpartition("/")[2]
    return ".so" in last or last.rpartition(".")[2].lower() in SUFFIXES
