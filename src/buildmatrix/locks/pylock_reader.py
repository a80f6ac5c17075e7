"""A PEP 751 lock, ours or another tool's, validated and turned into a `Lock`.

Format: https://packaging.python.org/en/latest/specifications/pylock-toml/. What a lock needs not
have (`size`, `index`, our own `[tool.buildmatrix]`) may be missing; what is there must be right.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.utils import canonicalize_name

from buildmatrix.errors import Problem, SpecError
from buildmatrix.locks.inputs import inputs_digest
from buildmatrix.locks.model import Lock, Package, Sdist, Wheel
from buildmatrix.locks.text import (
    address_of,
    byte_count,
    check_count,
    decode,
    load_toml,
    read_bytes,
    table_lines,
)
from buildmatrix.parsing import version_or_none
from buildmatrix.text import without_login
from buildmatrix.toml import mapping, string, strings, tool_table
from buildmatrix.urls import path_in

_HINT = "restore it, or run `buildmatrix lock`"
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: What an entry can be installed from (PEP 751); one of these.
_FILES = ("wheels", "sdist", "archive", "vcs", "directory")
_MISSING_ENTRY: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True)
class LockRecord:
    """What `[tool.buildmatrix]` of a lock says; empty where the lock is another tool's."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def read_lock(path: Path) -> Lock:
    """Read and validate a lock. Raises `SpecError` with all of its problems."""
    return read_lock_and_record(path)[0]


def read_lock_and_record(path: Path) -> tuple[Lock, LockRecord]:
    """The lock together with buildmatrix's own record in it."""
    data = read_bytes(path, str(path), "run `buildmatrix lock`")
    return entries_of(data, path, str(path), lambda _: True)


def entries_of(
    data: bytes, path: Path, label: str, keep: Callable[[Mapping[str, object]], bool]
) -> tuple[Lock, LockRecord]:
    """The entries of a lock that `keep` says yes to, and buildmatrix's own record in it.

    `label` is what the file is called; `path` is only noted in the lock. All entries are validated.
    Raises `SpecError` with all problems.
    """
    text = decode(data, label)
    lock, record = entries_in(text, load_toml(text, label, _HINT), path, label, keep)
    return replace(lock, digest="sha256:" + hashlib.sha256(data).hexdigest()), record


def entries_in(
    text: str,
    document: Mapping[str, object],
    path: Path,
    label: str,
    keep: Callable[[Mapping[str, object]], bool],
) -> tuple[Lock, LockRecord]:
    """`entries_of` a document that is `text`; the lock has no digest yet."""
    reader = _PylockReader(label)
    lock = reader.lock(path, text, document, keep)
    if reader.problems:
        raise SpecError(reader.problems)
    return lock, reader.record


class _PylockReader:
    """Walks one document and collects what is wrong with it."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.record = LockRecord()

    def lock(
        self,
        path: Path,
        text: str,
        document: Mapping[str, object],
        keep: Callable[[Mapping[str, object]], bool],
    ) -> Lock:
        version = document.get("lock-version")
        if not isinstance(version, str) or version.split(".")[0] != "1":
            self.problem(f"`lock-version` is {version!r}, and only 1.x can be read")
        tool = tool_table(document, "buildmatrix")
        self.record = LockRecord(
            inputs={k: v for k, v in mapping(tool.get("inputs")).items() if isinstance(v, str)},
            packages={k: mapping(v) for k, v in mapping(tool.get("packages")).items()},
        )
        packages = document.get("packages")
        if not isinstance(packages, list):
            self.problem("there is not an array `packages`", hint="see PEP 751")
            packages = []
        check_count(len(packages), self.file)
        lines = table_lines(text, "packages", len(packages))
        read = [
            (item, self.package(item, f"packages[{n}]", lines[n]))
            for n, item in enumerate(packages)
        ]
        return Lock(
            path=path,
            packages=tuple(
                package for item, package in read if not isinstance(item, dict) or keep(item)
            ),
            inputs=inputs_digest(self.record.inputs) if self.record.inputs else "",
            digest="",
            decided=frozenset(strings(tool.get("decided"))),
        )

    def package(self, item: object, place: str, line: int | None) -> Package:
        if not isinstance(item, dict):
            self.problem(f"{place} is not a table")
            item = {}
        name = item.get("name")
        if not isinstance(name, str) or not name or canonicalize_name(name) != name:
            self.problem(f"{place}: `name` is {name!r}, and must be a normalized name (PEP 503)")
            name = "unknown"
        place = f"package `{name}`"
        origin = self.record.packages.get(name, _MISSING_ENTRY)
        index = item.get("index", origin.get("index"))
        wheels = item.get("wheels", [])
        if not isinstance(wheels, list):
            self.problem(f"{place}: `wheels` is not an array")
            wheels = []
        archive = mapping(item.get("archive"))
        files = [wheel for entry in wheels if (wheel := self.wheel(entry, place))]
        if path_in(address_of(archive)).endswith(".whl"):
            files.append(Wheel(*_archived(archive)))
        return Package(
            name=name,
            version=self.version(item.get("version"), place),
            index=without_login(index) if isinstance(index, str) else None,
            wheels=tuple(files),
            source_only=not wheels and "archive" not in item,
            via=tuple(sorted(strings(origin.get("via")))),
            place=f"{self.file}:{line}" if line else "",
            source="" if files else without_login(_source(item)),
            unknown="" if any(map(item.get, _FILES)) else "its lock names no file of it",
            sdist=_sdist(item),
        )

    def version(self, value: object, place: str) -> str:
        if value is None:
            return ""  # Allowed for directories and repositories.
        version = version_or_none(string(value))
        if version is None:
            self.problem(f"{place}: `version` is {value!r}, and must be a version (PEP 440)")
        return str(version or "")

    def wheel(self, item: object, place: str) -> Wheel | None:
        entry = mapping(item)
        url = entry.get("url", entry.get("path"))
        if not isinstance(url, str):
            self.problem(f"{place}: a wheel has neither `url` nor `path`")
            return None
        filename = string(entry.get("name")) or posixpath.basename(path_in(url))
        if not filename.endswith(".whl") or "/" in filename:
            self.problem(f"{place}: `{filename}` is not a valid name of a wheel")
        sha256 = mapping(entry.get("hashes")).get("sha256")
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            self.problem(f"{place}: `{filename}` has no sha256 hash", hint="lock it with hashes")
            return None
        return Wheel(
            filename=filename,
            url=without_login(url),
            sha256=sha256,
            size=byte_count(entry.get("size")),
        )

    def problem(self, message: str, hint: str | None = None) -> None:
        self.problems.append(Problem(message, self.file, hint=hint))


def _sdist(item: Mapping[str, object]) -> Sdist | None:
    """Return the source distribution of an entry: of an index, or an archive."""
    table = mapping(item.get("sdist")) or mapping(item.get("archive"))
    if not table or path_in(address_of(table)).endswith(".whl"):
        return None
    return Sdist(*_archived(table))


def _archived(archive: Mapping[str, object]) -> tuple[str, str, str, int | None]:
    """Return the name, URL, hash and size of a file; older tools gave an archive no hash."""
    address = address_of(archive)
    sha256 = string(mapping(archive.get("hashes")).get("sha256"))
    return (
        string(archive.get("name")) or posixpath.basename(path_in(address)),
        without_login(address),
        sha256 if _SHA256.fullmatch(sha256) else "",
        byte_count(archive.get("size")),
    )


def _source(item: Mapping[str, object]) -> str:
    """What an entry without wheels is built from, where that is not a file of an index."""
    repository = mapping(item.get("vcs"))
    if repository:
        kind, commit = string(repository.get("type")), string(repository.get("commit-id"))
        return f"{kind}+{address_of(repository)}@{commit}"
    return address_of(mapping(item.get("directory")) or mapping(item.get("archive")))
