"""A lock of another tool: read once, for what it holds and for whether it fits its inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from buildmatrix.errors import Problem, SpecError
from buildmatrix.locks.ask import Ask
from buildmatrix.locks.model import LeftOut, Lock, Package
from buildmatrix.locks.text import decode, load_toml, mapping, read_bytes
from buildmatrix.parsing import parse_json


@dataclass(frozen=True, slots=True)
class LockFile:
    """The content of a lock, and what is asked of it."""

    ask: Ask
    text: str
    document: Mapping[str, object]
    #: `sha256:<hex>` of its bytes.
    digest: str

    @property
    def label(self) -> str:
        """How the file is called."""
        return self.ask.label

    def lock(self, packages: Iterable[Package], left_out: LeftOut) -> Lock:
        """The lock as it holds `packages`."""
        ask = self.ask
        return Lock(ask.path, ask.target.id, tuple(packages), "", self.digest, left_out)


def open_lock(ask: Ask, tool: str) -> LockFile:
    """Read the lock `ask.path`, which the command `tool` makes; raises `SpecError`."""
    hint = f"run `{tool}`" if tool else None
    data = read_bytes(ask.path, ask.label, hint)
    text = decode(data, ask.label)
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    if ask.path.name != "Pipfile.lock":
        return LockFile(ask, text, load_toml(text, ask.label, hint), digest)
    try:
        return LockFile(ask, text, mapping(parse_json(text)), digest)
    except json.JSONDecodeError as error:
        problem = f"this is no JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise SpecError([Problem(problem, ask.label, error.lineno, error.colno, hint)]) from error
