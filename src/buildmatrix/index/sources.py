"""Facts of a source distribution: what its build files say, and what is built already in it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from packaging.utils import canonicalize_name

from buildmatrix.binaries import devicefile
from buildmatrix.elf.layout import MAGIC as ELF_MAGIC
from buildmatrix.elf.source import BytesSource
from buildmatrix.index.model import SourceFacts
from buildmatrix.index.source_archive import (
    METADATA_FILES,
    SourceArchive,
    SourceFile,
    metadata_bytes,
    static_requirements,
)
from buildmatrix.inventory.mattering import LEAST
from buildmatrix.inventory.nested import detect_container
from buildmatrix.trees import containers
from buildmatrix.trees.base import Unreadable

#: Bytes of one file whose text is read, and of the texts of build files together.
_LARGEST_TEXT = 1 << 20
_MOST_BUILD_TEXT = 4 << 20
#: Bytes of other files that are held, to see what they are.
_BEGINNING = 8 * containers.HEAD
#: Names of files and libraries that are kept.
_MOST_NAMES = 2000
_BUILD_FILE = re.compile(
    r"(?:[^/]+\.py|setup\.cfg|pyproject\.toml)"
    r"|(?:.*/)?(?:CMakeLists\.txt|[^/]+\.cmake(?:\.in)?|meson\.(?:build|options)|meson_options\.txt"
    r"|(?:GNU)?[Mm]akefile[^/]*|[^/]+\.(?:mk|bzl|gyp|gn|gni)|BUILD(?:\.bazel)?|build\.rs"
    r"|Cargo\.toml|configure(?:\.ac)?|setup\.py|SConstruct)"
)
_CODE = (".py", ".pyx", ".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".rs")
_LIBRARY = re.compile(rb"[\"'](?:[\w./-]*/)?(lib[\w+-]{1,80}\.so(?:\.[\w.]{1,20})?)[\"']")
#: Programs and libraries of other systems.
_FOREIGN_MAGICS = (b"MZ", b"\xcf\xfa\xed\xfe", b"\xfe\xed\xfa\xcf", b"\xca\xfe\xba\xbe")


def source_facts(
    chunks: Iterable[bytes], sha256: str, name: str, version: str, most: int
) -> SourceFacts:
    """The facts of a source distribution of at most `most` bytes; nothing of it is run.

    Raises `Unreadable` for what cannot be read whole, or has more that matters than is held.
    """
    texts: dict[str, str] = {}
    metadata: dict[str, bytes] = {}
    built: dict[str, None] = {}
    suffixes: dict[str, str] = {}
    libraries: dict[str, str] = {}
    with SourceArchive(chunks, sha256, most) as archive:
        for file in archive.files(_held):
            if file.path in METADATA_FILES:
                metadata[file.path] = file.data
            if _is_built(file):
                built.setdefault(file.path)
            suffixes.setdefault(file.path.rpartition("/")[2].rpartition(".")[2].lower(), file.path)
            if _BUILD_FILE.fullmatch(file.path):
                if len(file.data) < file.size:
                    raise Unreadable(f"{file.path} has {file.size} bytes, and is not read whole")
                texts[file.path] = file.data.decode("utf-8", "replace")
            for match in _LIBRARY.finditer(file.data if file.path.endswith(_CODE) else b""):
                libraries.setdefault(match[1].decode(), file.path)
            if max(len(built), len(suffixes), len(libraries)) > _MOST_NAMES:
                raise Unreadable(f"it has more than {_MOST_NAMES} names that matter")
            if sum(map(len, texts.values())) > _MOST_BUILD_TEXT:
                raise Unreadable(f"its build files have more than {_MOST_BUILD_TEXT} bytes")
        size = archive.size
    return SourceFacts(
        requires=static_requirements(metadata, canonicalize_name(name), version),
        built=tuple(built),
        suffixes=tuple(sorted(suffixes.items())),
        build_files=tuple(sorted(texts.items())),
        libraries=tuple(sorted(libraries.items())),
        size=size,
    )


def _held(path: str, size: int) -> int:
    if metadata := metadata_bytes(path, size):
        return metadata
    is_text = _BUILD_FILE.fullmatch(path) is not None or path.endswith(_CODE)
    return _LARGEST_TEXT if is_text else _BEGINNING


def _is_built(file: SourceFile) -> bool:
    """Return True if a file is compiled code, or may contain some."""
    head = file.data[: containers.HEAD]
    if head.startswith((ELF_MAGIC, *_FOREIGN_MAGICS)):
        return True
    if devicefile.detect_kind(file.path, head) is not None:
        return True
    if file.size < LEAST or containers.detect_format(head, file.size) is None:
        return False
    # Compressed text and tables are no containers.
    return detect_container(BytesSource(file.data), head, file.size, file.path) is not None
