"""Lines of a requirements file: their ends, options, and requirements.

Format: https://pip.pypa.io/en/stable/reference/requirements-file-format/. Like pip and uv, this
accepts more than PEP 508: `name @ URL; marker` without a space before the semicolon
(`parse_req_from_line` of pip, `parse_url` of uv's `pep508_rs`), and `${VARIABLE}`.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from packaging.markers import InvalidMarker
from packaging.requirements import Requirement

from buildmatrix.base import parsing, toml
from buildmatrix.base.data import replace
from buildmatrix.base.errors import Problem, SpecError
from buildmatrix.base.parsing import parse_marker, version_or_none
from buildmatrix.base.text import remember
from buildmatrix.base.toml import string
from buildmatrix.facts.files import read_at_most
from buildmatrix.facts.trees.base import reason

_COMMENT = re.compile(r"(^|\s)#.*$")
#: `-r FILE` and `-c FILE`.
INCLUDE = re.compile(r"(-r|--requirement|-c|--constraint)(?:\s*=\s*|\s+|(?<=-[rc]))(\S.*)")
#: Options behind a requirement, `--hash=sha256:...`.
TRAILING_OPTIONS = re.compile(r"\s--?[a-z].*$")
HASHES = re.compile(r"(\s+--hash(=|\s+)\S+)+\s*")
#: Hashes that no index lists, and that an installer verifies (`STRONG_HASHES` of pip).
OTHER_HASH = re.compile(
    r"\s--hash(?:=|\s+)(?:sha384:[0-9A-Fa-f]{96}|sha512:[0-9A-Fa-f]{128})(?!\S)"
)
SHA256 = re.compile(r"\s--hash(?:=|\s+)sha256:([0-9A-Fa-f]{64})(?!\S)")
ARCHIVE = re.compile(r"\.(whl|zip|tar\.gz|tar\.bz2|tgz)$")
#: Requirements of one source with what it includes; the largest real files have 3000.
MOST_LINES = 20_000
#: Environment variables, as pip and uv read them: capital letters, digits and underscores.
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
_OPTION = re.compile(r"(--?[A-Za-z][A-Za-z-]*)(?:\s*=\s*|\s+|$)(.*)")
_LONG = {"-i": "--index-url", "--pypi-url": "--index-url", "-f": "--find-links"}
_NAMED = re.compile(
    r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[([^\[\]]*)\])?\s*@\s*(\S.*)", re.DOTALL
)
_EXTRAS = re.compile(r"(.*[^\s\[])\[([^\[\]/]*)\]")
_SEMICOLON = re.compile(r"\s*;\s*")
#: Semicolons per line that may separate a marker.
_MOST_SEMICOLONS = 20


class RequirementLine(Struct, frozen=True):
    """One requirement of a user's file."""

    file: str
    line: int
    #: Normalized name of the distribution.
    name: str
    requirement: Requirement
    #: Allowed sha256 hashes, in hex; empty if all are allowed.
    hashes: frozenset[str] = frozenset()
    #: True if it has hashes of any kind; without a sha256 they do not identify a file.
    is_hashed: bool = False

    def __str__(self) -> str:
        # What a command line names has no lines.
        return f"{self.file}:{self.line}" if self.line else self.file


class Place(Struct, frozen=True):
    """Place of a requirement."""

    label: str
    #: 0 on a command line.
    number: int
    #: Folder that relative paths start from.
    folder: Path
    constraint: bool = False
    #: Columns in front of the line.
    indent: int = 0

    def __str__(self) -> str:
        return f"{self.label}:{self.number}" if self.number else self.label

    def problem(self, message: str, column: int | None = None, hint: str | None = None) -> Problem:
        """Return a problem at this place."""
        return Problem(message, self.label, self.number or None, column, hint)


class LocatedRequirement(Struct, frozen=True):
    """A requirement with the place of its file, its folder or its repository."""

    #: As written; empty for an address alone.
    name: str
    #: As written, sorted.
    extras: tuple[str, ...]
    address: str
    #: As written, not validated. Empty for none.
    marker: str

    def __str__(self) -> str:
        text = (
            f"{self.name}{self.bracket} @ {self.address}"
            if self.name
            else (f"{self.address}{self.bracket}")
        )
        return f"{text} ; {self.marker}" if self.marker else text

    @property
    def bracket(self) -> str:
        """Extras in brackets: `[a,b]`, or nothing."""
        return format_extras(self.extras)


def format_extras(extras: Iterable[str]) -> str:
    """Return extras in brackets: `[a,b]`, sorted; empty for none."""
    names = ",".join(sorted(extras))
    return f"[{names}]" if names else ""


def option_in(line: str) -> tuple[str, str]:
    """Split an option into its long name and its value; any other line is its own name."""
    match = _OPTION.fullmatch(line)
    if match is None:
        return line, ""
    return _LONG.get(match[1], match[1]), match[2].strip("\"' ")


def logical_lines(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield lines without comments, continuations joined, with the number of their first part.

    The last value is True if more than hashes were joined, which uv does not do.
    """
    start, parts = 1, list[str]()
    # The empty line ends a continuation at the end of the file.
    for number, physical in enumerate([*text.splitlines(), ""], 1):
        if not parts:
            start = number
        if physical.endswith("\\") and not physical.lstrip().startswith("#"):
            parts.append(physical[:-1])
            continue
        parts.append(physical)
        line = _COMMENT.sub("", "".join(parts)).strip()
        added = [_COMMENT.sub("", part).strip() for part in parts[1:]]
        joined = len(parts) > 1 and not (
            all(not more or more.startswith("--hash") for more in added) and HASHES.search(line)
        )
        parts = []
        if line:
            yield start, line, joined


def too_many(file: str) -> Problem:
    """Return the problem of a source with too many requirements."""
    problem = f"with what it includes, it has more than {MOST_LINES} requirements"
    return Problem(problem, file, hint="split it, and read the parts one by one")


def expand_variables(text: str) -> str:
    """Return the text with `${NAME}` replaced by that variable, if it is set and not empty.

    Addresses of servers keep theirs until they are requested: the values are often secrets.
    """
    return _VARIABLE.sub(lambda match: os.environ.get(match[1]) or match[0], text)


def parse_requirement(text: str) -> Requirement:
    """Parse a requirement as pip and uv do. Raises `InvalidRequirement`."""
    located = parse_named_address(text)
    if located is None:
        return parsing.parse_requirement(text)
    quoted = re.sub(r"\s", "%20", located.address)
    return parsing.parse_requirement(str(replace(located, address=quoted)))


def allows(requirement: Requirement, version: str) -> bool:
    """Return True if a requirement allows a version, or if that is not valid."""
    valid = version_or_none(version)
    return valid is None or requirement.specifier.contains(valid, prereleases=True)


def parse_named_address(text: str) -> LocatedRequirement | None:
    """Parse `name[extras] @ where; marker`; None for every other requirement."""
    match = _NAMED.fullmatch(text)
    if match is None:
        return None
    address, marker = _split_marker(match[3])
    return LocatedRequirement(match[1], _names(match[2]), address, marker)


def parse_bare_address(text: str) -> LocatedRequirement:
    """Parse `where[extras]; marker`, which has no name."""
    address, marker = _split_marker(text)
    match = _EXTRAS.fullmatch(address)
    return (
        LocatedRequirement("", _names(match[2]), match[1], marker)
        if match
        else LocatedRequirement("", (), address, marker)
    )


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(sorted({part.strip() for part in (text or "").split(",") if part.strip()}))


def _split_marker(text: str) -> tuple[str, str]:
    """Split an address and its marker: a semicolon can also be part of the address."""
    spaced = None
    for number, separator in enumerate(_SEMICOLON.finditer(text)):
        address, marker = text[: separator.start()], text[separator.end() :].strip()
        if number >= _MOST_SEMICOLONS:
            break
        try:
            parse_marker(marker)
        except InvalidMarker:
            if spaced is None and len(separator[0]) > 1:
                spaced = address, marker  # The marker is checked where it is evaluated.
            continue
        return address.strip(), marker
    return spaced or (text.strip(), "")


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
