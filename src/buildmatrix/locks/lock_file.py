"""A lock of another tool: read once, for what it holds and for whether it fits its inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from buildmatrix.errors import Problem, SpecError
from buildmatrix.locks.model import LeftOut, Lock, Package
from buildmatrix.locks.selection import LockSelection
from buildmatrix.locks.text import check_count, decode, load_toml, read_bytes, table_lines
from buildmatrix.locks.walk import LockEdge, LockEntry
from buildmatrix.strict_json import parse_json
from buildmatrix.toml import mapping, string, tables


@dataclass(frozen=True, slots=True)
class LockFile:
    """The content of a lock, and what is asked of it."""

    selection: LockSelection
    text: str
    document: Mapping[str, object]
    #: `sha256:<hex>` of its bytes.
    digest: str

    @property
    def label(self) -> str:
        """How the file is called."""
        return self.selection.label

    def entries(
        self,
        dependencies: Callable[[Mapping[str, object]], Mapping[str, tuple[LockEdge, ...]]],
        forks: Callable[[Mapping[str, object]], tuple[str, ...]],
        key: str = "package",
    ) -> list[LockEntry]:
        """The tables `[[package]]`; the functions read what differs. Raises `SpecError`."""
        packages = tables(self.document.get(key))
        check_count(len(packages), self.label)
        entries = []
        for table, line in zip(packages, table_lines(self.text, key, len(packages)), strict=True):
            name = string(table.get("name"))
            version = self.selection.check_version(string(table.get("version")), name, line)
            place = f"{self.label}:{line}" if line else ""
            further = dependencies(table), forks(table)
            entries.append(LockEntry(canonicalize_name(name), version, table, place, *further))
        return entries

    def lock(self, packages: Iterable[Package], left_out: LeftOut) -> Lock:
        """The lock as it holds `packages`."""
        return Lock(self.selection.path, tuple(packages), "", self.digest, left_out)


def open_lock(selection: LockSelection, tool: str) -> LockFile:
    """Read the lock `selection.path`, which the command `tool` makes; raises `SpecError`."""
    hint = f"run `{tool}`" if tool else None
    data = read_bytes(selection.path, selection.label, hint)
    text = decode(data, selection.label)
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    if selection.path.name != "Pipfile.lock":
        return LockFile(selection, text, load_toml(text, selection.label, hint), digest)
    try:
        return LockFile(selection, text, mapping(parse_json(text)), digest)
    except json.JSONDecodeError as error:
        problem = f"this is not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise SpecError(
            [Problem(problem, selection.label, error.lineno, error.colno, hint)]
        ) from error
