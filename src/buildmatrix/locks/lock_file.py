"""A lock of another tool: read once, for what it holds and for whether it fits its inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from buildmatrix.errors import Problem, SpecError
from buildmatrix.locks.model import LeftOut, Lock, Package
from buildmatrix.locks.selection import LockSelection
from buildmatrix.locks.text import decode, load_toml, mapping, read_bytes
from buildmatrix.parsing import parse_json


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

    def lock(self, packages: Iterable[Package], left_out: LeftOut) -> Lock:
        """The lock as it holds `packages`."""
        selection = self.selection
        return Lock(selection.path, selection.target.id, tuple(packages), "", self.digest, left_out)


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
