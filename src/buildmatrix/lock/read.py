"""A PEP 751 lock, ours or another tool's, validated and turned into a `Lock`.

Format: https://packaging.python.org/en/latest/specifications/pylock-toml/. What a lock needs not
have (`size`, `index`, our own `[tool.buildmatrix]`) may be missing; what is there must be right.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from buildmatrix.errors import Problem, SpecError
from buildmatrix.lock.inputs import inputs_digest
from buildmatrix.lock.model import Lock, Package, Wheel
from buildmatrix.lock.urls import redact

#: Far above any real lock: 1000 packages with all their wheels come to some 5 MB.
_LARGEST = 64 * 1024 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MISSING_ENTRY: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True)
class Record:
    """What `[tool.buildmatrix]` of a lock says; empty where the lock is another tool's."""

    target: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def read_lock(path: Path) -> Lock:
    """Read and validate a lock. Raises `SpecError` with all of its problems."""
    return read_lock_and_record(path)[0]


def read_lock_and_record(path: Path) -> tuple[Lock, Record]:
    """The lock together with buildmatrix's own record in it."""
    data, document = _load(path)
    reader = _Reader(str(path))
    lock = reader.lock(path, data, document)
    if reader.problems:
        raise SpecError(reader.problems)
    return lock, reader.record


def _load(path: Path) -> tuple[bytes, dict[str, object]]:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        problem = Problem(
            f"the lock cannot be read: {why}", str(path), hint="run `buildmatrix lock`"
        )
        raise SpecError([problem]) from error
    if len(data) > _LARGEST:
        problem = Problem(f"this is no lock: it is larger than {_LARGEST >> 20} MiB", str(path))
        raise SpecError([problem])
    try:
        return data, tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        why = "it nests too deeply" if isinstance(error, RecursionError) else str(error)
        problem = Problem(
            f"this is no TOML: {why}", str(path), hint="restore it, or run `buildmatrix lock`"
        )
        raise SpecError([problem]) from error


class _Reader:
    """Walks one document and collects what is wrong with it."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.record = Record()

    def lock(self, path: Path, data: bytes, document: Mapping[str, object]) -> Lock:
        version = document.get("lock-version")
        if not isinstance(version, str) or version.split(".")[0] != "1":
            self.problem(f"`lock-version` is {version!r}, and only 1.x can be read")
        tool = _mapping(_mapping(document.get("tool")).get("buildmatrix"))
        self.record = Record(
            target=_text(tool.get("target")),
            inputs={k: v for k, v in _mapping(tool.get("inputs")).items() if isinstance(v, str)},
            packages={k: _mapping(v) for k, v in _mapping(tool.get("packages")).items()},
        )
        packages = document.get("packages")
        if not isinstance(packages, list):
            self.problem("there is no array `packages`", hint="see PEP 751")
            packages = []
        return Lock(
            path=path,
            target=self.record.target,
            packages=tuple(self.package(item, f"packages[{n}]") for n, item in enumerate(packages)),
            inputs=inputs_digest(self.record.inputs) if self.record.inputs else "",
            digest="sha256:" + hashlib.sha256(data).hexdigest(),
        )

    def package(self, item: object, where: str) -> Package:
        if not isinstance(item, dict):
            self.problem(f"{where} is no table")
            item = {}
        name = item.get("name")
        if not isinstance(name, str) or not name or canonicalize_name(name) != name:
            self.problem(f"{where}: `name` is {name!r}, and must be a normalised name (PEP 503)")
            name = "unknown"
        where = f"package `{name}`"
        origin = self.record.packages.get(name, _MISSING_ENTRY)
        index = item.get("index", origin.get("index"))
        via = origin.get("via")
        wheels = item.get("wheels", [])
        if not isinstance(wheels, list):
            self.problem(f"{where}: `wheels` is no array")
            wheels = []
        return Package(
            name=name,
            version=self.version(item.get("version"), where),
            index=redact(index) if isinstance(index, str) else None,
            wheels=tuple(wheel for entry in wheels if (wheel := self.wheel(entry, where))),
            source_only=not wheels and "archive" not in item,
            via=tuple(sorted(v for v in via if isinstance(v, str)))
            if isinstance(via, list)
            else (),
        )

    def version(self, value: object, where: str) -> str:
        if value is None:
            return ""  # Allowed for directories and repositories.
        try:
            return str(Version(value)) if isinstance(value, str) else self.bad_version(value, where)
        except InvalidVersion:
            return self.bad_version(value, where)

    def bad_version(self, value: object, where: str) -> str:
        self.problem(f"{where}: `version` is {value!r}, and must be a version (PEP 440)")
        return ""

    def wheel(self, item: object, where: str) -> Wheel | None:
        entry = _mapping(item)
        url = entry.get("url", entry.get("path"))
        if not isinstance(url, str):
            self.problem(f"{where}: a wheel has neither `url` nor `path`")
            return None
        filename = _text(entry.get("name")) or posixpath.basename(unquote(urlsplit(url).path))
        if not filename.endswith(".whl") or "/" in filename:
            self.problem(f"{where}: `{filename}` is no name of a wheel")
        sha256 = _mapping(entry.get("hashes")).get("sha256")
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            self.problem(f"{where}: `{filename}` has no sha256 hash", hint="lock it with hashes")
            return None
        size = entry.get("size")
        return Wheel(
            filename=filename,
            url=redact(url),
            sha256=sha256,
            size=size if isinstance(size, int) and size >= 0 else None,
        )

    def problem(self, message: str, hint: str | None = None) -> None:
        self.problems.append(Problem(message, self.file, hint=hint))


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
