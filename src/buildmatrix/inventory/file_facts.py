"""Facts of one file: what its bytes are, read once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol

from buildmatrix.binaries import devicefile
from buildmatrix.binaries.model import DeviceFile, Elf
from buildmatrix.binaries.reader import Malformed, read_elf
from buildmatrix.inventory.nested import (
    NestedContents,
    look_inside,
    recognised,
    recognised_behind,
)
from buildmatrix.python_imports.source import (
    LARGEST_SEARCHED,
    Outline,
    compiled_outline,
    is_sourceless,
    outline,
    runs_at_startup,
    startup_outline,
)
from buildmatrix.python_imports.statements import Stated, is_stating, stated
from buildmatrix.trees import containers
from buildmatrix.trees.base import File, RandomAccess, Tree, defect, reason
from buildmatrix.trees.inflating import Inflated

ELF_MAGIC = b"\x7fELF"
#: Bytes of a `.pth` file of `site`; checkpoints of torch are called the same, and have more.
LARGEST_STARTUP = 1 << 20


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What the bytes of one file are: at most one of the first four is set.

    A program may have a container behind it.
    """

    elf: Elf | None = None
    outline: Outline | None = None
    device: DeviceFile | None = None
    unread: str | None = None
    contents: NestedContents | None = None
    #: What says that it may matter, where it was not looked at; see `ClosedFile.by`.
    closed: Literal["name", "bytes", "size"] | None = None
    #: Of a file with an outline that is named after what it says.
    stated: Stated | None = None
    #: What it cost in this scan; 0 for what was recalled.
    bytes_read: int = 0


class FactMemory(Protocol):
    """Facts of the files of a tree from earlier scans; `buildmatrix.store` has one that lasts."""

    def recall(self, file: File) -> FileFacts | None:
        """The facts of `file` when it had these bytes; None when they are not known."""

    def keep(self, file: File, facts: FileFacts) -> None:
        """Remember the facts of `file`; called for all files, also those just recalled."""


def opened(tree: Tree, file: File, facts: FileFacts) -> FileFacts:
    """`facts` of `file` of `tree`, with what it holds where it is a container."""
    try:
        with tree.open(file.path) as source:
            return with_contents(facts, source, file.path, file.size)
    except OSError as error:
        why = reason(error)
    except Exception as error:
        why = defect(error)
    kind = facts.contents.kind if facts.contents is not None else ""
    return replace(facts, contents=NestedContents(kind, closed=why))


def with_contents(facts: FileFacts, source: RandomAccess, path: str, size: int) -> FileFacts:
    """`facts` with what the file holds, where it is a container that was not opened yet."""
    if facts.contents is None or facts.contents.waiting is None:
        return facts
    before = source.bytes_read
    contents = look_inside(source, path, size, facts.contents.waiting)
    bytes_read = facts.bytes_read + source.bytes_read - before
    return replace(facts, contents=contents, bytes_read=bytes_read)


def inspect(tree: Tree, file: File) -> FileFacts:
    """What `file` of `tree` is; trouble with its bytes is part of the result."""
    if file.size < len(ELF_MAGIC):
        return FileFacts()
    try:
        with tree.open(file.path) as source:
            return look(source, file.path, file.size)
    except OSError as error:
        return FileFacts(unread=reason(error))
    except Exception as error:
        return FileFacts(unread=defect(error))


def look(source: RandomAccess, path: str, size: int, *, nested: bool = False) -> FileFacts:
    """What the file at `path` is, whose `size` bytes `source` has. Raises OSError.

    The first bytes decide: a file is Python by its name only where they are those of nothing else.
    An `Inflated` source is read as far as it takes to see that it is nothing, or to its end. A
    container is recognised, unless the file is itself `nested` in one; see `with_contents`.
    """
    text = source.read(0, min(size, LARGEST_SEARCHED)) if is_python(path) else b""
    head = text[: containers.HEAD] or source.read(0, containers.HEAD)
    if text and containers.is_text(head):
        return replace(_python_facts(path, text, size), bytes_read=source.bytes_read)
    elf: Elf | None = None
    device: DeviceFile | None = None
    contents = None
    try:
        if not nested and not head.startswith(ELF_MAGIC):
            contents = recognised(source, head, size)
        if contents is not None:
            pass
        elif devicefile.detect_kind(path, head) is not None:
            device = devicefile.read_device_file(source, size, path)
        elif head.startswith(ELF_MAGIC):
            elf = read_elf(source, size)
            if elf is not None and not nested:
                contents = recognised_behind(source, elf, size)
    except Malformed as error:
        return FileFacts(unread=error.reason, bytes_read=source.bytes_read)
    if isinstance(source, Inflated) and (elf or device):
        source.finish()
    if runs_at_startup(path) and elf is None and device is None and size <= LARGEST_STARTUP:
        lines = startup_outline(source.read(0, size)) if contents is None else None
        return FileFacts(outline=lines, contents=contents, bytes_read=source.bytes_read)
    if text and elf is None and device is None and not head.startswith(ELF_MAGIC):
        facts = _python_facts(path, text, size)
        return replace(facts, contents=contents, bytes_read=source.bytes_read)
    return FileFacts(elf=elf, device=device, contents=contents, bytes_read=source.bytes_read)


def is_python(path: str) -> bool:
    """Check whether Python imports a file of this name as a module in source or bytecode."""
    return path.endswith(".py") or is_sourceless(path)


def _python_facts(path: str, text: bytes, size: int) -> FileFacts:
    """Return what the Python file at `path` says, whose first bytes are `text`."""
    if is_sourceless(path):
        return FileFacts(outline=compiled_outline(text))
    found = outline(text)
    if size > len(text):
        # It may load, in the part that was not looked at.
        found = replace(found, loads=True)
    return FileFacts(outline=found, stated=stated(text) if is_stating(path, size) else None)
