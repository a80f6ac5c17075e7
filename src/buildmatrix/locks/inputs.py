"""What a resolution depends on, and its digest.

The values are kept in the lock one by one, so that a stale lock can say which of them changed.
The machine is not an input: neither its interpreter, nor its uv, nor its mirrors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from buildmatrix import toml
from buildmatrix.locks.platform import python_platform
from buildmatrix.locks.requirement_set import RequirementSet
from buildmatrix.spec.model import Target
from buildmatrix.text import without_login

#: Prefix of the keys of files.
FILE = "file "


def input_values(root: Path, target: Target, requirements: RequirementSet) -> dict[str, str]:
    """Name → value of every input: files as `file <path>` with their sha256, and target values."""
    values = {FILE + file: _sha256(data) for file, data in requirements.files.items()}
    values |= _uv_settings(root)
    values |= {
        "python": target.python,
        "platform": python_platform(target),
        "requirements": " ".join(target.requirements),
        "pyproject": target.pyproject or "",
        "extras": " ".join(sorted(target.extras)),
        "drop": " ".join(sorted(target.drop)),
        "no-binary": " ".join(sorted(target.no_binary)),
        "torch": "" if "torch" in target.index else target.torch or "",
    }
    values |= {f"replace {name}": twin for name, twin in target.replace.items()}
    values |= {f"index {family}": without_login(url) for family, url in target.index.items()}
    return {key: values[key] for key in sorted(values)}


def inputs_digest(values: Mapping[str, str]) -> str:
    """The digest of `input_values`, `sha256:<hex>`."""
    return _sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode())


def difference(then: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """The first input that changed, in words; None where all are equal."""
    for key in sorted({*then, *now}, key=lambda key: (not key.startswith(FILE), key)):
        if then.get(key) == now.get(key):
            continue
        if key.startswith(FILE):
            file = key.removeprefix(FILE)
            if key not in then:
                return f"{file} is an input now and was not when the lock was made"
            if key not in now:
                return f"{file} was an input when the lock was made and is not now"
            return f"{file} changed since the lock was made"
        was, now_is = then.get(key) or "not set", now.get(key) or "not set"
        return f"`{key}` was {was} when the lock was made and is {now_is} now"
    return None


def _uv_settings(root: Path) -> dict[str, str]:
    """Uv's own settings beside the specification: they can hold constraints and indexes."""
    settings = root / "uv.toml"
    if settings.is_file():
        return {f"{FILE}uv.toml": _sha256(settings.read_bytes())}
    project = root / "pyproject.toml"
    if not project.is_file():
        return {}
    data = project.read_bytes()
    try:
        tool = toml.loads(data.decode()).get("tool")
    except (UnicodeDecodeError, toml.TomlError):
        return {}  # uv reports it when it resolves.
    has_settings = isinstance(tool, dict) and "uv" in tool
    return {f"{FILE}pyproject.toml": _sha256(data)} if has_settings else {}


def _sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()
