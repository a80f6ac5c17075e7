"""The requirement lines that a lock names: their text, where their files are still there."""

from __future__ import annotations

import re
from pathlib import Path

from buildmatrix.locks.model import Lock

#: Folders above a lock in which its requirement files are looked for.
_ABOVE = 3
#: Bytes of a requirement file of which a line is shown.
LARGEST_REQUIREMENTS = 1 << 20


def requirement_lines(lock: Lock | None, root: Path) -> tuple[dict[str, str], tuple[Path, ...]]:
    """Text of the lines that a lock names, by `file:line`, and their files."""
    lines: dict[str, str] = {}
    files: dict[str, list[str]] = {}
    names = {package.name for package in lock.packages} if lock is not None else set[str]()
    for label in (via for package in (lock.packages if lock else ()) for via in package.via):
        file, colon, number = label.rpartition(":")
        if label in names or not colon or not re.fullmatch(r"\d{1,9}", number, re.ASCII):
            continue
        if file not in files:
            files[file] = _lines_of(root, file)
        if 0 < int(number) <= len(files[file]):
            text = files[file][int(number) - 1].partition(" #")[0].strip().rstrip(",\\").strip()
            lines[label] = _unquoted(text.removeprefix("- "))
    return lines, tuple(root / file for file in files)


def _unquoted(text: str) -> str:
    """An element of a TOML array without its quotes; `xgboost = "*"` keeps the one at its end."""
    quote = text[:1]
    whole = quote in ("'", '"') and len(text) > 1 and text.endswith(quote)
    return text[1:-1] if whole and quote not in text[1:-1] else text


def _lines_of(root: Path, name: str) -> list[str]:
    path = root / name
    try:
        if not path.resolve().is_relative_to(root.resolve()) or not path.is_file():
            return []
        with path.open("rb") as file:
            return file.read(LARGEST_REQUIREMENTS).decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def root_of(lock: Lock) -> Path:
    """The folder that the requirement lines of a lock are relative to: where their files are."""
    files = [
        via.rpartition(":")[0] for package in lock.packages for via in package.via if ":" in via
    ]
    folders = (lock.path.parent, *lock.path.absolute().parent.parents[:_ABOVE])
    for folder in folders:
        if any((folder / file).is_file() for file in files):
            return folder
    return lock.path.parent
