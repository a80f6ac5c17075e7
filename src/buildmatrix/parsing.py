"""What foreign text says: versions, requirements, markers, names of wheels, numbers, documents.

The libraries that read these raise more than they promise: a number of over 4300 digits is a bare
`ValueError` (Python documentation, "Integer string conversion length limitation"), and brackets in
brackets are a `RecursionError`, some of them only once a value is compared. Here each text is
either read, and then safe to use, or refused by the one exception that its function names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect
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
Value = TypeVar("Value")

#: Characters of a version, a specifier or a file name: names of files end at 255.
_LONGEST_NAME = 2000
#: Characters of a requirement or a marker; uv's markers for conflicting extras have some thousand.
_LONGEST_LINE = 100_000
#: Digits of one number in those: dates and times with fractions have twenty.
_LONGEST_NUMBER = 200
#: Brackets within brackets; conditions that tools write have a handful.
_DEEPEST = 50
#: The same of a JSON document; those of tools have ten.
_DEEPEST_JSON = 200
#: How msgspec ends a sentence about a malformed document.
_BYTE = re.compile(r"\(byte ([0-9]+)\)\Z")
_CONTAINERS = (dict, list)
_NUMBER = re.compile(rf"[0-9]{{{_LONGEST_NUMBER + 1}}}")
_LABEL = re.compile(r"[0-9a-z_.]+")
_BRACKETS = re.compile(r"[()]")


def parse_version(text: str) -> Version:
    """A version (PEP 440). Raises `InvalidVersion`."""
    return _read(Version, text, InvalidVersion, _LONGEST_NAME)


@lru_cache(maxsize=4096)
def version_or_none(text: str) -> Version | None:
    """A version (PEP 440); None for other text."""
    try:
        return parse_version(text)
    except InvalidVersion:
        return None


def parse_specifiers(text: str) -> SpecifierSet:
    """What is asked of a version: `>=3.9,<4`. Raises `InvalidSpecifier`."""
    return _read(SpecifierSet, text, InvalidSpecifier, _LONGEST_LINE)


def parse_requirement(text: str) -> Requirement:
    """A requirement (PEP 508). Raises `InvalidRequirement`."""
    return _read(Requirement, text, InvalidRequirement, _LONGEST_LINE)


def requirement_or_none(text: str) -> Requirement | None:
    """A requirement (PEP 508); None for other text."""
    try:
        return parse_requirement(text)
    except InvalidRequirement:
        return None


def parse_marker(text: str) -> Marker:
    """An environment marker (PEP 508). Raises `InvalidMarker`."""
    return _read(Marker, text, InvalidMarker, _LONGEST_LINE)


def holds(marker: Marker, environment: Mapping[str, str]) -> bool:
    """Whether a marker holds. Raises `InvalidMarker` for what cannot be compared."""
    try:
        return marker.evaluate(dict(environment))
    # Undefined names and invalid versions are wrong values.
    except (ValueError, RecursionError) as error:
        raise InvalidMarker(f"it cannot be decided: {error}") from error


def parse_wheel_name(text: str) -> tuple[NormalizedName, Version, BuildTag, frozenset[Tag]]:
    """What the file name of a wheel says. Raises `InvalidWheelFilename`."""
    return _read(parse_wheel_filename, text, InvalidWheelFilename, _LONGEST_NAME)


def split_variant(filename: str) -> tuple[str, str | None]:
    """The name of a variant wheel (PEP 825, a draft) without its label, and the label.

    None for other wheels. A tag of a Python does not begin with a digit, and a build tag does.
    """
    stem, _, label = filename.removesuffix(".whl").rpartition("-")
    parts = stem.count("-") + 1
    has_label = parts == 6 or (parts == 5 and not stem.split("-")[2][:1].isdigit())
    if not filename.endswith(".whl") or not has_label or not _LABEL.fullmatch(label):
        return filename, None
    return f"{stem}.whl", label


def parse_sdist_name(text: str) -> tuple[NormalizedName, Version]:
    """What the file name of a source distribution says. Raises `InvalidSdistFilename`."""
    return _read(parse_sdist_filename, text, InvalidSdistFilename, _LONGEST_NAME)


class JsonError(json.JSONDecodeError):
    """A reason to refuse a document, without the line that the base class adds to its text."""

    def __init__(self, why: str, read: bytes = b"") -> None:
        super().__init__(why, read.decode("latin-1"), len(read))
        self.args = (why,)


def parse_json(text: str | bytes) -> Any:
    """Read a JSON document that every reader takes for the same value.

    Raises `json.JSONDecodeError` where readers differ: a key that comes twice (Go and Python take
    the last one), bytes that are not UTF-8, halves of surrogate pairs, a byte order mark, numbers
    beyond 64 bits, and brackets nested deeper than in any real document.
    """
    try:
        data = text.encode() if isinstance(text, str) else text
        value = msgspec.json.decode(data)
        again = msgspec.json.encode(value)
        msgspec.msgpack.encode(value)  # has no integers beyond 64 bits
    except OverflowError:
        raise JsonError("a number in it has more than 64 bits") from None
    except RecursionError:
        raise JsonError("it nests too deeply") from None
    except ValueError as error:
        place = _BYTE.search(str(error))
        raise JsonError(str(error), data[: int(place[1])] if place else b"") from None
    # A repeated key is decoded once, so the document written again has fewer quotes.
    if data.count(b'"') != again.count(b'"') or b"\\u0022" in data:
        json.loads(data, object_pairs_hook=_check_repetition)
    if data.count(b"[") + data.count(b"{") > _DEEPEST_JSON:
        _check_depth(value)
    return value


def decode_json(data: bytes, kind: type[Value], *, has_numbers_as_text: bool = False) -> Value:
    """Read a JSON document of a type. Raises `ValueError`; see `parse_json`, `check_spelling`."""
    check_spelling(parse_json(data), kind)
    return msgspec.json.decode(data, type=kind, strict=not has_numbers_as_text)


def check_spelling(value: Any, kind: Any) -> None:
    """Raise `ValueError` where a key differs from a field of `kind` in upper and lower case only.

    Go's decoder takes such a key for the field, and the last one wins.
    """
    _check_spelling(value, _shape(kind))


@dataclass(slots=True)
class _Shape:
    """The objects of a type: their fields by folded name, or the type of their free keys."""

    fields: dict[str, tuple[str, _Shape]]
    items: _Shape | None = None


@cache
def _shape(kind: Any) -> _Shape:
    known: dict[Any, _Shape] = {}

    def of(info: inspect.Type) -> _Shape:
        shape = _Shape({})
        if isinstance(info, inspect.UnionType):
            # JSON has one type of object and one of arrays: a union has one struct at most.
            shapes = [of(part) for part in info.types]
            return next((part for part in shapes if part.fields or part.items), shape)
        if isinstance(info, inspect.DictType):
            shape.items = of(info.value_type)
        elif isinstance(info, inspect.ListType | inspect.VarTupleType | inspect.SetType):
            shape.items = of(info.item_type)
        elif isinstance(info, inspect.StructType | inspect.DataclassType):
            if info.cls in known:
                return known[info.cls]
            known[info.cls] = shape
            for field in info.fields:
                shape.fields[field.encode_name.casefold()] = (field.encode_name, of(field.type))
        return shape

    return of(inspect.type_info(kind))


def _check_spelling(value: Any, shape: _Shape) -> None:
    if shape.items is not None:
        parts = value.values() if isinstance(value, dict) else value
        if (shape.items.fields or shape.items.items) and isinstance(value, dict | list):
            for part in parts:
                _check_spelling(part, shape.items)
    elif shape.fields and isinstance(value, dict):
        for key, part in value.items():
            field = shape.fields.get(key.casefold())
            if field is None:
                continue
            if key != field[0]:
                raise ValueError(f"its key {key[:100]!r} differs from {field[0]!r} in case only")
            if isinstance(part, dict | list):
                _check_spelling(part, field[1])


def _check_repetition(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise JsonError(f"the key {key[:100]!r} comes twice in it")
        seen.add(key)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_DEEPEST_JSON):
        level = [
            part
            for item in level
            for part in (item.values() if type(item) is dict else item)
            if type(part) in _CONTAINERS
        ]
        if not level:
            return
    raise JsonError("it nests too deeply")


def natural(text: str) -> list[tuple[int, int | str]]:
    """A sort key under which 3.9 comes before 3.10; works for any text."""
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
    # Of a part, as the version in the name of a wheel.
    except (ValueError, RecursionError) as inner:
        raise error(str(inner)) from inner


def _depth(text: str) -> int:
    depth = deepest = 0
    for bracket in _BRACKETS.findall(text):
        depth += 1 if bracket == "(" else -1
        deepest = max(deepest, depth)
    return deepest
