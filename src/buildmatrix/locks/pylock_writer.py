"""The text of a lock: uv's PEP 751 output, and a `[tool.buildmatrix]` table behind it.

The table holds what PEP 751 has no place for or uv does not write: the inputs of the resolution,
and for each package its index and what requires it. Other installers ignore it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from buildmatrix.locks.inputs import inputs_digest
from buildmatrix.locks.model import LockedFile, Package
from buildmatrix.spec.model import LOCK_HEADER
from buildmatrix.text import without_login
from buildmatrix.toml import written, written_key

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Origin:
    """Where one package comes from."""

    index: str | None
    via: tuple[str, ...]


def document(body: str, uv: str, inputs: Mapping[str, str], origins: Mapping[str, Origin]) -> str:
    """The whole file, from uv's output `body` and what is known beside it.

    It does not name its target: targets that ask the same have equal locks, which Docker's cache
    takes for one input of the step that installs them.
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
    """The lock of a target that was taken from the lock `label`, which its project has.

    It has no lines of files: what is installed changes with the files of the packages alone.
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
