"""Parsers of untrusted text: versions, requirements, markers, file names, numbers.

The libraries raise more than they document: a number of over 4300 digits raises a bare `ValueError`
(Python documentation, "Integer string conversion length limitation"), and nested brackets raise
`RecursionError`, some only when values are compared. Here, each text is either parsed and then safe
to use, or refused by the one exception that the function documents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeVar

from packaging.markers import InvalidMarker, Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag
from packaging.utils import (
    BuildTag,
    InvalidSdistFilename,
    InvalidWheelFilename,
    NormalizedName,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

Read = TypeVar("Read")

#: Characters of a version or a file name; file systems allow 255.
_LONGEST_NAME = 2000
#: Characters of a requirement or marker; uv's markers for conflicting extras have some thousand.
_LONGEST_LINE = 100_000
#: Digits of a number; timestamps with fractions have twenty.
_LONGEST_NUMBER = 200
#: Depth of brackets; conditions that tools write have a handful.
_DEEPEST = 50
_NUMBER = re.compile(rf"[0-9]{{{_LONGEST_NUMBER + 1}}}")
_LABEL = re.compile(r"[0-9a-z_.]+")
_BRACKETS = re.compile(r"[()]")


def parse_version(text: str) -> Version:
    """Parse a version (PEP 440). Raises `InvalidVersion`."""
    return _read(Version, text, InvalidVersion, _LONGEST_NAME)


@lru_cache(maxsize=4096)
def version_or_none(text: str) -> Version | None:
    """Parse a version (PEP 440); return None for other text."""
    try:
        return parse_version(text)
    except InvalidVersion:
        return None


def parse_specifiers(text: str) -> SpecifierSet:
    """Parse version specifiers, such as `>=3.9,<4`. Raises `InvalidSpecifier`."""
    return _read(SpecifierSet, text, InvalidSpecifier, _LONGEST_LINE)


def parse_requirement(text: str) -> Requirement:
    """Parse a requirement (PEP 508). Raises `InvalidRequirement`."""
    return _read(Requirement, text, InvalidRequirement, _LONGEST_LINE)


@lru_cache(maxsize=16384)
def requirement_or_none(text: str) -> Requirement | None:
    """Parse a requirement (PEP 508), which callers share; return None for other text."""
    try:
        return parse_requirement(text)
    except InvalidRequirement:
        return None


def parse_marker(text: str) -> Marker:
    """Parse an environment marker (PEP 508). Raises `InvalidMarker`."""
    return _read(Marker, text, InvalidMarker, _LONGEST_LINE)


def holds(marker: Marker, environment: Mapping[str, str]) -> bool:
    """Return True if a marker applies. Raises `InvalidMarker` if it cannot be evaluated."""
    try:
        return marker.evaluate(dict(environment))
    # Undefined names and invalid versions raise subclasses of `ValueError`.
    except (ValueError, RecursionError) as error:
        raise InvalidMarker(f"it cannot be decided: {error}") from error


def parse_wheel_name(text: str) -> tuple[NormalizedName, Version, BuildTag, frozenset[Tag]]:
    """Parse the file name of a wheel. Raises `InvalidWheelFilename`."""
    return _read(parse_wheel_filename, text, InvalidWheelFilename, _LONGEST_NAME)


def split_variant(filename: str) -> tuple[str, str | None]:
    """Return the name of a variant wheel (PEP 825, a draft) without its label, and the label.

    The label of other wheels is None. A Python tag does not begin with a digit, and a build tag
    does.
    """
    stem, _, label = filename.removesuffix(".whl").rpartition("-")
    parts = stem.count("-") + 1
    has_label = parts == 6 or (parts == 5 and not stem.split("-")[2][:1].isdigit())
    if not filename.endswith(".whl") or not has_label or not _LABEL.fullmatch(label):
        return filename, None
    return f"{stem}.whl", label


def parse_sdist_name(text: str) -> tuple[NormalizedName, Version]:
    """Parse the file name of a source distribution. Raises `InvalidSdistFilename`."""
    return _read(parse_sdist_filename, text, InvalidSdistFilename, _LONGEST_NAME)


def natural(text: str) -> list[tuple[int, int | str]]:
    """Return a sort key that puts 3.9 before 3.10, for any text."""
    return [
        (0, part) if not part.isdecimal() or len(part) > _LONGEST_NUMBER else (1, int(part))
        for part in re.split(r"([0-9]+)", text)
    ]


def _read(read: Callable[[str], Read], text: str, error: type[ValueError], longest: int) -> Read:
    if len(text) > longest:
        raise error(f"it has {len(text)} characters: {text[:60]!r}...")
    if _NUMBER.search(text):
        raise error(f"a number in it has over {_LONGEST_NUMBER} digits: {text[:60]!r}...")
    if _depth(text) > _DEEPEST:
        raise error(f"its brackets nest too deeply: {text[:60]!r}...")
    try:
        return read(text)
    except error:
        raise
    # Errors of a part, such as the version in the name of a wheel.
    except (ValueError, RecursionError) as inner:
        raise error(str(inner)) from inner


def _depth(text: str) -> int:
    depth = deepest = 0
    for bracket in _BRACKETS.findall(text):
        depth += 1 if bracket == "(" else -1
        deepest = max(deepest, depth)
    return deepest
