"""Facts of one file, from a single read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol

from buildmatrix.binaries import devicefile
from buildmatrix.binaries.model import DeviceFile, Elf
from buildmatrix.binaries.reader import Malformed, read_elf
from buildmatrix.inventory.nested import (
    NestedContents,
    detect_appended_container,
    detect_container,
    read_container,
)
from buildmatrix.python_imports.source import (
    LARGEST_SEARCHED,
    Outline,
    is_sourceless,
    make_compiled_outline,
    make_outline,
    make_startup_outline,
    runs_at_startup,
)
from buildmatrix.python_imports.statements import Literals, has_literals, read_literals
from buildmatrix.trees import containers
from buildmatrix.trees.base import File, RandomAccess, Tree, defect, reason
from buildmatrix.trees.inflating import Inflated

ELF_MAGIC = b"\x7fELF"
#: Size limit of a `.pth` file of `site`; torch checkpoints with this suffix are larger.
LARGEST_STARTUP = 1 << 20


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
    #: Bytes read in this scan; 0 if recalled.
    bytes_read: int = 0


class FactMemory(Protocol):
    """Facts of a tree's files from earlier scans; `buildmatrix.store` has a persistent one."""

    def recall(self, file: File) -> FileFacts | None:
        """Return the facts of `file` with these bytes; None if unknown."""

    def keep(self, file: File, facts: FileFacts) -> None:
        """Store the facts of `file`; called for all files, also those just recalled."""


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
    head = text[: containers.HEAD] or source.read(0, containers.HEAD)
    if text and containers.is_text(head):
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
