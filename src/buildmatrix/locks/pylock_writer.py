"""The text of a lock: uv's PEP 751 output, with a `[tool.buildmatrix]` table appended.

The table has the data that PEP 751 has no place for or uv does not write: the inputs of the
resolution, and for each package its index and its askers. Other installers ignore it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from buildmatrix.base import toml
from buildmatrix.base.text import without_login
from buildmatrix.base.toml import written, written_key
from buildmatrix.locks.model import LockedFile, Package
from buildmatrix.locks.plan import torch_backend
from buildmatrix.locks.requirement_lines import RequirementSet
from buildmatrix.locks.selection import python_platform
from buildmatrix.matrix.model import LOCK_HEADER, Target

# Inputs. The values are stored one by one, so that a stale lock can name the changed one. The
# machine is not an input: neither its interpreter, nor its uv, nor its mirrors.


#: Prefix of the keys of files.
FILE_PREFIX = "file "


def input_values(root: Path, target: Target, requirements: RequirementSet) -> dict[str, str]:
    """Return name → value of every input: files as `file <path>` with sha256, and target values."""
    values = {FILE_PREFIX + file: _sha256(data) for file, data in requirements.files.items()}
    values |= _uv_settings(root)
    values |= {
        "python": target.python,
        "platform": python_platform(target),
        "requirements": " ".join(target.requirements),
        "pyproject": target.pyproject or "",
        "extras": " ".join(sorted(target.extras)),
        "drop": " ".join(sorted(target.drop)),
        "no-binary": " ".join(sorted(target.no_binary)),
        "torch": torch_backend(target) or "",
    }
    values |= {f"replace {name}": twin for name, twin in target.replace.items()}
    values |= {f"index {family}": without_login(url) for family, url in target.index.items()}
    return {key: values[key] for key in sorted(values)}


def inputs_digest(values: Mapping[str, str]) -> str:
    """Return the digest of `input_values`, `sha256:<hex>`."""
    return _sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode())


def difference(then: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Return the first input that changed, in words; None if all are equal."""
    for key in sorted({*then, *now}, key=lambda key: (not key.startswith(FILE_PREFIX), key)):
        if then.get(key) == now.get(key):
            continue
        if key.startswith(FILE_PREFIX):
            file = key.removeprefix(FILE_PREFIX)
            if key not in then:
                return f"{file} is an input now and was not when the lock was made"
            if key not in now:
                return f"{file} was an input when the lock was made and is not now"
            return f"{file} changed since the lock was made"
        was, now_is = then.get(key) or "not set", now.get(key) or "not set"
        return f"`{key}` was {was} when the lock was made and is {now_is} now"
    return None


def _uv_settings(root: Path) -> dict[str, str]:
    """Return uv's settings beside the specification: they can have constraints and indexes."""
    settings = root / "uv.toml"
    if settings.is_file():
        return {f"{FILE_PREFIX}uv.toml": _sha256(settings.read_bytes())}
    project = root / "pyproject.toml"
    if not project.is_file():
        return {}
    data = project.read_bytes()
    try:
        tool = toml.loads(data.decode()).get("tool")
    except (UnicodeDecodeError, toml.TomlError):
        return {}  # uv reports it when it resolves.
    has_settings = isinstance(tool, dict) and "uv" in tool
    return {f"{FILE_PREFIX}pyproject.toml": _sha256(data)} if has_settings else {}


def _sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of one package."""

    index: str | None
    via: tuple[str, ...]


def document(body: str, uv: str, inputs: Mapping[str, str], origins: Mapping[str, Origin]) -> str:
    """Return the whole file, from uv's output `body` and further data.

    It does not name its target: targets with equal requirements have equal locks, which Docker's
    cache takes for one input of the step that installs them.
    """
    lines = [
        "[tool.buildmatrix]",
        f"schema = {SCHEMA}",
        _entry("uv", uv),
        _entry("inputs-digest", inputs_digest(inputs)),
        "",
        "[tool.buildmatrix.inputs]",
        *(_entry(key, value) for key, value in inputs.items()),
        "",
        "[tool.buildmatrix.packages]",
        *(_entry(name, _origin(origins[name])) for name in sorted(origins)),
    ]
    return without_login(f"{LOCK_HEADER}{body.strip()}\n\n" + "\n".join(lines) + "\n")


def _entry(name: str, value: object) -> str:
    return f"{written_key(name)} = {written(value)}"


def _origin(origin: Origin) -> Mapping[str, object]:
    index = {} if origin.index is None else {"index": origin.index}
    return {**index, "via": origin.via}


def taken_document(label: str, packages: Sequence[Package], decided: Collection[str]) -> str:
    """Return the lock of a target that was taken from the project's lock `label`.

    It has no lines of files: the installation changes with the files of the packages alone.
    """
    lines = [
        f"# Taken by `buildmatrix lock` from {label}. Do not edit: change that lock instead.",
        'lock-version = "1.0"',
        'created-by = "buildmatrix"',
        *([] if packages else ["packages = []"]),
    ]
    for package in sorted(packages, key=lambda package: package.name):
        lines += ["", "[[packages]]", _entry("name", package.name)]
        lines += [_entry("version", package.version)] if package.version else []
        lines += [_entry("index", package.index)] if package.index else []
        lines += [_entry("sdist", _file(package.sdist))] if package.sdist is not None else []
        if package.wheels:
            lines += ["wheels = [", *(f"    {written(_file(w))}," for w in package.wheels), "]"]
    lines += ["", "[tool.buildmatrix]", f"schema = {SCHEMA}", _entry("decided", sorted(decided))]
    lines += ["", "[tool.buildmatrix.packages]"]
    for package in packages:
        via = sorted({re.sub(r":\d+$", "", asker) for asker in package.via})
        lines.append(_entry(package.name, {"via": via}))
    return without_login("\n".join(lines) + "\n")


def _file(file: LockedFile) -> Mapping[str, object]:
    size = {} if file.size is None else {"size": file.size}
    return {
        "name": file.filename,
        "url": file.url,
        **size,
        "hashes": {"sha256": file.sha256},
    }
