"""Source distributions (`.tar.gz`, `.zip`) and their facts, read within limits and never run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from copy import copy

from msgspec import Struct
from packaging.markers import InvalidMarker
from packaging.utils import canonicalize_name

from buildmatrix.base import toml
from buildmatrix.base.parsing import parse_marker, requirement_or_none, version_or_none
from buildmatrix.facts.binaries import devicefile
from buildmatrix.facts.elf.layout import MAGIC as ELF_MAGIC
from buildmatrix.facts.inventory.distributions import LARGEST_METADATA, metadata_headers
from buildmatrix.facts.inventory.file_facts import detect_container
from buildmatrix.facts.inventory.listing import LEAST
from buildmatrix.facts.trees import containers, formats
from buildmatrix.facts.trees.archive import BytesSource, Slice, Spool, safe_path
from buildmatrix.facts.trees.base import Unreadable
from buildmatrix.locks.model import SourceFacts

# Archives. A tar archive has no directory, and only its last byte proves its hash: it is held
# completely, in an unnamed file, before a member is trusted.


#: Bytes of an archive.
LARGEST = 128 << 20
#: Bytes that it may inflate to.
MOST_INFLATED = 1 << 30
MOST_FILES = 100_000
#: Bytes to hold of one file.
LARGEST_HELD = 8 << 20
#: Sources of a distribution's metadata.
METADATA_FILES = ("pyproject.toml", "PKG-INFO")


class SourceFile(Struct, frozen=True):
    """A file of a source distribution."""

    #: Below the one folder that the archive holds.
    path: str
    size: int
    #: Its first bytes, or all of them.
    data: bytes


@contextmanager
def hold(
    chunks: Iterable[bytes], sha256: str = "", most: int = LARGEST
) -> Iterator[tuple[Slice, str]]:
    """Hold the bytes of an archive in an unnamed file; yield it, and its SHA-256 in hex.

    Raises `Unreadable` for more than `most` bytes, and where their SHA-256 is not `sha256` (any,
    where that is empty).
    """
    hasher = hashlib.sha256()

    def counted() -> Iterator[bytes]:
        size = 0
        for chunk in chunks:
            size += len(chunk)
            if size > most:
                raise Unreadable(f"it has more than {most >> 20} MiB, which is not read")
            hasher.update(chunk)
            yield chunk

    with closing(Spool()) as spool:
        archive = spool.store(counted())
        if sha256 and sha256 != hasher.hexdigest():
            raise Unreadable(
                f"it has the SHA-256 {hasher.hexdigest()}, and the lock says {sha256}: it is"
                " another file than the one that was locked"
            )
        yield archive, hasher.hexdigest()


def source_files(archive: Slice, held: Callable[[str, int], int]) -> Iterator[SourceFile]:
    """Yield each file in the order of the archive, with its first `held(path, size)` bytes.

    At most `LARGEST_HELD` bytes of a file are held. A path may come twice: installers take the
    last one. Links have no bytes of their own and are left out. Raises `Unreadable` for what
    is no such archive, is damaged or a bomb, or has files beside its one folder or outside it.
    """
    kind = formats.detect_format(archive.read(0, formats.HEAD), archive.size)
    if kind not in ("zip", "tar", "compressed"):
        raise Unreadable("neither a ZIP archive nor a tar archive")
    root = ""
    members = containers.members(archive, kind, "", MOST_INFLATED)
    for number, member in enumerate(members):
        if number == MOST_FILES:
            raise Unreadable(f"it has more than {MOST_FILES} files")
        name = safe_path(member.name)
        folder, slash, path = (name or "").partition("/")
        if name is None or not slash or folder != (root := root or folder):
            raise Unreadable(f"{member.name[:200]!r} is outside of its single folder")
        most = min(held(path, member.size), member.size, LARGEST_HELD)
        data = b""
        if most > 0:
            with member.open() as source:
                data = source.read(0, most)
        yield SourceFile(path, member.size, data)


def metadata_bytes(path: str, size: int) -> int:
    """The bytes to hold of a file that `static_requirements` reads; 0 for others."""
    return size if path in METADATA_FILES and size <= LARGEST_METADATA else 0


def static_requirements(
    files: Mapping[str, bytes], name: str, version: str
) -> tuple[str, ...] | None:
    """The `Requires-Dist` lines of all wheels that are built of a source; None if a build decides.

    `files` has those of `METADATA_FILES` that the source has. Metadata of another distribution than
    `name` in `version` do not count. As uv does (`StaticMetadata::read`): from `[project]`, else
    from a PKG-INFO of Metadata 2.2 or newer.
    """
    lines = _project_requirements(files.get("pyproject.toml", b""), name, version)
    if lines is None:
        lines = _recorded_requirements(files.get("PKG-INFO", b""), name, version)
    return lines


def _project_requirements(data: bytes, name: str, version: str) -> tuple[str, ...] | None:
    try:
        document = toml.loads(data.decode())
    except (UnicodeDecodeError, toml.TomlError):
        return None
    project, tool = document.get("project"), document.get("tool")
    if not isinstance(project, dict):
        return None
    dynamic = project.get("dynamic", [])
    dependencies, optional = project.get("dependencies"), project.get("optional-dependencies", {})
    if (
        not isinstance(dynamic, list)
        or not {"dependencies", "optional-dependencies", "requires-python"}.isdisjoint(
            filter(lambda field: isinstance(field, str), dynamic)
        )
        # Without the key, they may be in a table that only Poetry reads.
        or (dependencies is None and isinstance(tool, dict) and "poetry" in tool)
        or not _is_expected(project.get("name"), project.get("version", version), name, version)
        or not isinstance(optional, dict)
    ):
        return None
    lines: list[str] = []
    for extra, items in (("", dependencies or []), *optional.items()):
        if not isinstance(items, list):
            return None
        for item in items:
            requirement = requirement_or_none(item) if isinstance(item, str) else None
            if requirement is None:
                return None
            if extra:
                own = f"({requirement.marker}) and " if requirement.marker else ""
                condition = f"{own}extra == '{canonicalize_name(extra)}'"
                requirement = copy(requirement)
                try:
                    requirement.marker = parse_marker(condition)
                except InvalidMarker:
                    return None
            lines.append(str(requirement))
    return tuple(lines)


def _recorded_requirements(data: bytes, name: str, version: str) -> tuple[str, ...] | None:
    headers = metadata_headers(data)
    own_name, own_version, written = (
        headers.get(key, [""])[0] for key in ("name", "version", "metadata-version")
    )
    metadata_version = version_or_none(written)
    dynamic = {field.lower() for field in headers.get("dynamic", ())}
    if (
        metadata_version is None
        or not (2, 2) <= metadata_version.release[:2] < (3, 0)
        or not dynamic.isdisjoint(("requires-dist", "requires-python", "provides-extra"))
        or not _is_expected(own_name, own_version, name, version)
    ):
        return None
    lines = tuple(headers.get("requires-dist", ()))
    return None if None in map(requirement_or_none, lines) else lines


def _is_expected(own_name: object, own_version: object, name: str, version: str) -> bool:
    """Return True if metadata are of `name` in `version`, which may lack its local part."""
    if not isinstance(own_name, str) or not isinstance(own_version, str):
        return False
    own, expected = version_or_none(own_version), version_or_none(version)
    return (
        canonicalize_name(own_name) == name
        and own is not None
        and expected is not None
        and expected in (own, version_or_none(own.public))
    )


# Facts


#: Bytes of text to read of one file, and of all build files together.
_LARGEST_TEXT = 1 << 20
_MOST_BUILD_TEXT = 4 << 20
#: Bytes of other files to hold, for their type.
_BEGINNING = 8 * formats.HEAD
#: Names of files and libraries to record.
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
    with hold(chunks, sha256, most) as (archive, _):
        for file in source_files(archive, _count_held):
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


def _count_held(path: str, size: int) -> int:
    if metadata := metadata_bytes(path, size):
        return metadata
    is_text = _BUILD_FILE.fullmatch(path) is not None or path.endswith(_CODE)
    return _LARGEST_TEXT if is_text else _BEGINNING


def _is_built(file: SourceFile) -> bool:
    """Return True if a file is compiled code, or may contain some."""
    head = file.data[: formats.HEAD]
    if head.startswith((ELF_MAGIC, *_FOREIGN_MAGICS)):
        return True
    if devicefile.detect_kind(file.path, head) is not None:
        return True
    if file.size < LEAST or formats.detect_format(head, file.size) is None:
        return False
    # Compressed text and tables are no containers.
    return detect_container(BytesSource(file.data), head, file.size, file.path) is not None
