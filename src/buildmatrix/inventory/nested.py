"""What lies in the archives, packages and self-extracting programs of a tree, one level down.

An installer, a Java runtime or a program unpacks them later, so what they hold ships with the tree.
Data archives are the many: of those only the list of members is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from buildmatrix.binaries import devicefile
from buildmatrix.binaries.model import DeviceFile, Elf
from buildmatrix.device_code.suffixes import SUFFIXES
from buildmatrix.elf.layout import MAGIC as ELF_MAGIC
from buildmatrix.inventory.mattering import LARGE_CONTAINER, LEAST, may_matter
from buildmatrix.inventory.names import readable
from buildmatrix.trees import containers
from buildmatrix.trees.archive import MOST_INFLATION, Slice
from buildmatrix.trees.base import RandomAccess, reason
from buildmatrix.trees.containers import Format, Inner

#: Between the path of a container and the name of a file in it, as in Java's URLs of jars.
SEPARATOR = "!/"
#: Files of one container that are looked at, and binaries of it that are kept.
MOST_LOOKED_AT = 20_000
#: Files of one container. Beyond the first thousand, each takes as many bytes of it: of names
#: alone, one of 1 MB may unpack to millions.
MOST_FILES = 250_000
MANY_FILES = 1_000
_BYTES_PER_FILE = 64
MOST_KEPT = 5_000
#: Containers of one tree that are opened.
MOST_CONTAINERS = 20_000
#: Bytes of one container that has to be inflated from its start, and of all such in one tree.
LARGEST_STREAM = 512 << 20
MOST_STREAMED = 1 << 30
#: Every container may inflate to this much.
SMALL_ALLOWANCE = 1 << 20
#: Containers inside of a container that are named.
_MOST_NAMED = 3
#: No binary has fewer bytes.
_SMALLEST = 256
#: Relocatable objects are for linkers: kernel modules, mostly.
_REL = b"\1\0"


@dataclass(frozen=True, slots=True)
class Nested:
    """A binary or device file in a container."""

    #: As the container has it.
    name: str
    size: int
    #: Bytes that it takes in the container, where it is packed by itself.
    packed: int | None
    elf: Elf | None = None
    device: DeviceFile | None = None


@dataclass(frozen=True, slots=True)
class NestedContents:
    """What is known of a container."""

    #: `zip`, `wheel`, `conda`, `deb`, `tar`, `compressed`, `script`, `pyinstaller`, `rpm`, ...
    kind: str
    #: Files in it.
    files: int = 0
    members: tuple[Nested, ...] = ()
    #: Why it was not opened, or not all of it; None where everything that matters was read.
    closed: str | None = None
    #: The format to open it with, where it was recognized and nothing decided yet whether it is
    #: opened: how much of one tree is has a limit.
    waiting: Format | None = None
    #: Whether it was opened all the same: the bytes of a layer pass by once.
    is_ahead: bool = False


def recognised(source: RandomAccess, head: bytes, size: int) -> NestedContents | None:
    """The container that the file in `source` is, by its first bytes; None for none that matters.

    A compressed file counts when it holds an archive, a program, or device code, and when nobody
    can see what it holds.
    """
    format = containers.format_of(head, size)
    if format is None and size >= LARGE_CONTAINER:
        format = containers.image_format(source)
    if format is None:
        return None
    if format in ("compressed", "lz4"):
        inside = containers.peek(source, head, size)
        if inside is not None and not _is_binary("", inside):
            return None
        if inside is not None and inside.startswith(ELF_MAGIC) and inside[16:18] == _REL:
            return None
    return NestedContents(format, waiting=format)


def _is_binary(name: str, head: bytes) -> bool:
    """Whether a file of a container is one that counts, or holds files, by its first bytes."""
    return (
        head.startswith(ELF_MAGIC)
        or devicefile.detect_kind(name, head) is not None
        or containers.format_of(head, 0) is not None
    )


def recognised_behind(source: RandomAccess, elf: Elf, size: int) -> NestedContents | None:
    """The container behind the program `elf`; None where there is none."""
    if elf.type not in ("exec", "dyn"):
        return None
    ends = [s.offset + s.size for s in elf.sections if not s.nobits]
    pydata = next((s.offset + s.size for s in elf.sections if s.name == "pydata"), None)
    if ends and pydata is None and size - max(ends) < containers.LARGEST_TABLES:
        return None
    format = containers.behind_program(source, size, max(ends, default=size), pydata)
    return None if format is None else NestedContents(format, waiting=format)


def stream_cost(kind: str, size: int) -> int:
    """What it takes to inflate all of a container, in bytes of gzip; nothing where that is spared.

    LZ4 is inflated in Python, at 3 MB a second.
    """
    if kind == "lz4":
        return 32 * size
    return size if kind in ("deb", "rpm", "compressed", "script") else 0


def planned(
    waiting: Mapping[str, tuple[int, NestedContents]],
) -> tuple[list[str], Mapping[str, NestedContents]]:
    """Which of the containers `waiting` are opened, and what is said of the others.

    That depends on sizes alone: the smallest first, of those that have to be inflated.
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


def look_inside(source: RandomAccess, path: str, size: int, format: Format) -> NestedContents:
    """What the container at `path` holds, whose `size` bytes `source` has.

    Trouble is in `NestedContents.closed`. Time and memory are bounded whatever the bytes say.
    """
    reader = _ContainerReader(format)
    most = SMALL_ALLOWANCE + MOST_INFLATION * size
    most_files = min(MOST_FILES, MANY_FILES + size // _BYTES_PER_FILE)
    try:
        for number, inner in enumerate(
            containers.members(Slice(source, 0, size), format, path, most)
        ):
            if number == most_files:
                reader.trouble(f"only {most_files} of its files were looked at")
                break
            reader.add(inner)
    except OSError as error:
        reader.trouble(reason(error))
    return reader.contents(size)


class _ContainerReader:
    """Collects what one container holds."""

    def __init__(self, format: Format) -> None:
        self._kind: str = format
        self._files = 0
        self._inflated = 0
        self._looked_at = 0
        self._members: list[Nested] = []
        self._troubles: dict[str, None] = {}
        self._closed: list[str] = []

    def trouble(self, why: str) -> None:
        """Remember why something in it could not be read."""
        if len(self._troubles) < _MOST_NAMED:
            self._troubles.setdefault(why)

    def add(self, inner: Inner) -> None:
        """Look at one file of the container."""
        self._files += 1
        self._inflated += inner.size
        name = readable(inner.name).lstrip("/")
        self._kind = _kind(self._kind, name)
        if inner.size < _SMALLEST:
            return
        try:
            # Its first bytes decide. To open it costs more, and is done at once where its name says
            # that it may matter.
            is_named = may_matter(name, inner.size) and not name.endswith(".py")
            if not is_named and not _is_binary(name, inner.head()):
                return
            if self._looked_at == MOST_LOOKED_AT or len(self._members) == MOST_KEPT:
                self.trouble(f"only {self._looked_at} of its files were looked at")
                return
            self._looked_at += 1
            with inner.open() as source:
                self._look(source, name, inner)
        except OSError as error:
            if _is_telling(name) or inner.size >= LARGE_CONTAINER:
                self.trouble(f"{name}: {reason(error)}")

    def _look(self, source: RandomAccess, name: str, inner: Inner) -> None:
        # Here, since `collect` asks this module what lies in containers.
        from buildmatrix.inventory.file_facts import look

        head = source.read(0, containers.HEAD)
        if head.startswith(ELF_MAGIC) or devicefile.detect_kind(name, head) is not None:
            facts = look(source, name, inner.size, nested=True)
            if facts.unread is not None:
                self.trouble(f"{name}: {facts.unread}")
            elif facts.elf is not None or facts.device is not None:
                self._members.append(
                    Nested(name, inner.size, inner.packed, elf=facts.elf, device=facts.device)
                )
        elif inner.size >= LARGE_CONTAINER and self._hides(source, name, head, inner):
            self._closed.append(name)

    def _hides(self, source: RandomAccess, name: str, head: bytes, inner: Inner) -> bool:
        """Whether a file of the container is itself one that may hold binaries."""
        size = inner.size
        contents = recognised(source, head, size)
        if contents is None:
            return False
        if self._kind == "conda" and name.startswith("pkg-") and inner.packed == size:
            return False  # The package in a .conda was opened.
        if contents.kind == "zip":
            archive = Slice(source, 0, size)
            return any(
                inner.size >= _SMALLEST and _is_telling(readable(inner.name))
                for inner in containers.members(archive, "zip", name, size)
            )
        return True

    def contents(self, size: int) -> NestedContents:
        """What the container of `size` bytes holds, in the order of the names.

        What is packed together takes its part of the container.
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


def _kind(kind: str, name: str) -> str:
    """The kind of a container of `kind` that holds a file `name`: packages are named."""
    if kind == "zip" and name.endswith(".dist-info/WHEEL") and name.count("/") == 1:
        return "wheel"
    if kind == "zip" and name.startswith("pkg-") and name.endswith(".tar.zst"):
        return "conda"
    return "conda" if kind == "compressed" and name == "info/index.json" else kind


def zip_kind(names: Iterable[str]) -> str:
    """The kind of a ZIP archive with files of these names."""
    return reduce(_kind, names, "zip")


def tensors_of(names: Iterable[str]) -> frozenset[str]:
    """Those files of a ZIP archive that are tensors, by the names that `torch.save` gives.

    A checkpoint has one folder, in it `data.pkl` and a file `data/NUMBER` for each tensor
    (PyTorch, `caffe2/serialize/inline_container.h`). What a program is called is not a number.
    """
    every = tuple(names)
    top = every[0].partition("/")[0] if every else ""
    if f"{top}/data.pkl" not in every or not all(name.startswith(f"{top}/") for name in every):
        return frozenset()
    tensor = re.compile(rf"{re.escape(top)}/data/[0-9]+", re.ASCII)
    return frozenset(name for name in every if tensor.fullmatch(name))


def may_hold_binary(name: str, size: int) -> bool:
    """Whether a file of a container may be one that counts, judged by its name and size."""
    if name.endswith((".py", "/")) or size < _SMALLEST:
        return False
    return _is_telling(name) or (size >= LEAST and may_matter(name, size))


def _is_telling(name: str) -> bool:
    """Whether the name of a file is that of a library or of device code."""
    last = name.rpartition("/")[2]
    return ".so" in last or last.rpartition(".")[2].lower() in SUFFIXES
