"""Reading of committed files: bounded, and with the place of every mistake."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from buildmatrix.base import toml
from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.base.toml import string
from buildmatrix.base.urls import remember
from buildmatrix.facts.files import read_at_most
from buildmatrix.facts.trees.base import reason

#: Far above any real lock: 1000 packages with all their wheels come to some 5 MB.
LARGEST = 64 * 1024 * 1024
#: Byte order marks of requirements files, as pip reads them (`auto_decode`); the longer ones first.
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: Packages of one lock; the largest real ones have some 2000.
MOST_PACKAGES = 20_000


def read_bytes(path: Path, label: str, hint: str | None, most: int = LARGEST) -> bytes:
    """Return the bytes of a file, at most `most`; raises `SpecError` with the name `label`."""
    try:
        # Reading a pipe or a device could block, or never end.
        if path.exists() and not path.is_file():
            raise SpecError([Problem("it is not a file", label, hint=hint)])
        data = read_at_most(path, most)
    except OSError as error:
        raise SpecError([Problem(f"cannot be read: {reason(error)}", label, hint=hint)]) from error
    if len(data) > most:
        problem = Problem(f"it is larger than {most >> 20} MiB", label)
        raise SpecError([problem])
    return data


def decode(data: bytes, label: str, marks: Sequence[tuple[bytes, str]] = ()) -> str:
    """Decode UTF-8, and remember its credentials (`urls`); raises `SpecError`.

    `marks` are byte order marks of other encodings that the file may have.
    """
    encoding = next((name for mark, name in marks if data.startswith(mark)), "utf-8-sig")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = Problem("this is not UTF-8 text", label, line, hint="save the file as UTF-8")
        raise SpecError([problem]) from error
    remember(text)
    return text


def load_toml(text: str, label: str, hint: str | None) -> dict[str, object]:
    """Parse a document; raises `SpecError` with the line of a mistake."""
    try:
        return toml.loads(text)
    except toml.TomlError as error:
        problem = f"this is not TOML: {error.msg[:1].lower()}{error.msg[1:]}"
        raise SpecError([Problem(problem, label, error.lineno, error.colno, hint)]) from error


def read_toml(path: Path, label: str) -> dict[str, object]:
    """Read the document in a file with the name `label`; raises `SpecError`."""
    return load_toml(decode(read_bytes(path, label, None), label), label, None)


def table_lines(text: str, name: str, count: int) -> Sequence[int | None]:
    """Return lines of the headers `[[name]]`, in order; all None if they are not `count`.

    A document may write its array of tables inline, or have such a line inside a string.
    """
    header = re.compile(rf"\s*\[\[\s*{re.escape(name)}\s*\]\]")
    lines = [number for number, line in enumerate(text.split("\n"), 1) if header.match(line)]
    return lines if len(lines) == count else [None] * count


def check_count(packages: int, label: str) -> None:
    """Raise `SpecError` for a lock with more packages than any real one has."""
    if packages > MOST_PACKAGES:
        raise SpecError([Problem(f"it holds more than {MOST_PACKAGES} packages", label)])


def address_of(table: Mapping[str, object]) -> str:
    """Return the `url` of a file or a folder, else its `path`; empty for neither."""
    return string(table.get("url")) or string(table.get("path"))


def sha256_digits(text: str) -> str:
    """Return the hex digits of `sha256:...`; empty for anything else."""
    match = re.fullmatch(r"sha256:([0-9a-f]{64})", text)
    return match[1] if match else ""


def byte_count(value: object) -> int | None:
    """Return the value if it is a number of bytes, else None."""
    return value if isinstance(value, int) and value >= 0 else None
