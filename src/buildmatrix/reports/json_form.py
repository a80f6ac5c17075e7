"""The JSON form of a document, field by field from its data classes, and its schema.

The first field of a document is `schema`, which names its form. A field that is not in the JSON
form, or not always, or not under its own name, says so itself (`IN_MEMORY`, `IF_KNOWN`, `key`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Struct

from buildmatrix import __version__
from buildmatrix.base.data import field_names, is_record
from buildmatrix.base.strict import check_spelling, parse_json
from buildmatrix.base.threads import prepare_type
from buildmatrix.judge.model import IF_KNOWN, IN_MEMORY, Finding
from buildmatrix.judge.registry import RULES

Document = TypeVar("Document")
Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

DRAFT = "https://json-schema.org/draft/2020-12/schema"
TOOL: Literal["buildmatrix"] = "buildmatrix"

#: Texts that are one of a few, where the type does not say so.
_VALUES: Mapping[tuple[type, str], tuple[str, ...]] = {
    (Finding, "rule"): tuple(rule.code for rule in RULES),
    (Finding, "name"): tuple(rule.name for rule in RULES),
}


class Tool(Struct, frozen=True, kw_only=True):
    """Tool that wrote a document."""

    name: Literal["buildmatrix"] = TOOL
    version: str


THIS_TOOL = Tool(version=__version__)


def render(document: object) -> str:
    """The document as JSON text; the same document gives the same bytes."""
    return dumps(plain(document))


def dumps(value: Json) -> str:
    """JSON text as every document has it. Half a surrogate pair, of a path, stays one."""
    try:
        data = msgspec.json.format(msgspec.json.encode(value), indent=2)
    except UnicodeEncodeError:
        return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    return data.decode() + "\n"


def plain(value: Any) -> Any:
    """Data classes as plain values. Seconds are rounded to milliseconds."""
    # Most values are texts, and what follows asks much of each.
    if value is None or isinstance(value, str | int):
        return value
    kind: Any = type(value)
    if is_record(kind):
        names, optional = _names(kind)
        held = ((key, getattr(value, name)) for name, key in names.items())
        return {key: plain(item) for key, item in held if item is not None or key not in optional}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return round(value, 3) if isinstance(value, float) else value


def key(name: str) -> Mapping[str, str]:
    """`field(metadata=key("from"))`: what the JSON form calls the field; not in a schema."""
    return {"json key": name}


@cache
def _names(kind: Any) -> tuple[Mapping[str, str], frozenset[str]]:
    """Fields in the JSON form → keys, and the keys that are left out where None."""
    known = _in_json(kind)
    return (
        {name: data.get("json key", name) for name, data in known.items()},
        frozenset(name for name, data in known.items() if data == IF_KNOWN),
    )


def _required(kind: Any) -> list[str]:
    names, optional = _names(kind)
    return [name for name in names if name not in optional]


def _in_json(kind: Any) -> dict[str, Mapping[str, str]]:
    """Fields in the JSON form → metadata. Those of a Struct have none."""
    if issubclass(kind, msgspec.Struct):
        return {name: {} for name in field_names(kind)}
    return {item.name: item.metadata for item in fields(kind) if item.metadata != IN_MEMORY}


def parse(data: bytes, kind: type[Document]) -> Document:
    """A document of one kind, from JSON text; later versions may have written it, or earlier ones.

    Raises `ValueError` for what is none: what is not JSON, has other types, or lacks a key that
    every document of this kind has.
    """
    try:
        document = parse_json(data)
        held = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        for name in _required(kind):
            if name not in held:
                raise ValueError(f"it has no `{name}`")
        form = msgspec.json.decode(held["schema"], type=str)
        (own,) = get_args(get_type_hints(kind)["schema"])
        if form != own:
            raise ValueError(f"it has the format {form}, and this version reads {own}")
        check_spelling(document, kind)
        return msgspec.json.decode(data, type=prepare_type(kind))
    except (msgspec.DecodeError, json.JSONDecodeError) as error:
        raise ValueError(str(error)) from error


def schema(kind: type, title: str) -> dict[str, Json]:
    """The JSON schema of documents of one kind (draft 2020-12).

    Objects are closed: what is not listed does not occur. A number is a count, a size or seconds,
    and so not negative, unless its type has a minimum of its own.
    """
    _, definitions = msgspec.json.schema_components([kind])
    kinds = dict(_classes(kind))
    parts: dict[str, Json] = {
        name: _close_object(kinds[name], definition) for name, definition in definitions.items()
    }
    whole = parts.pop(kind.__name__)
    assert isinstance(whole, dict)
    return {"$schema": DRAFT, "title": title, **whole, "$defs": parts}


def _classes(kind: Any) -> Iterator[tuple[str, type]]:
    """Name and class of each data class that a type is made of, itself included."""
    if is_record(kind):
        yield kind.__name__, kind
        for hint in get_type_hints(kind).values():
            yield from _classes(hint)
    for part in get_args(kind):
        yield from _classes(part)


def _close_object(kind: type, definition: Mapping[str, Any]) -> dict[str, Json]:
    """The schema of an object that has all of its properties, and no others."""
    properties: dict[str, Json] = {}
    hints = get_type_hints(kind)
    for name, data in _in_json(kind).items():
        value = _exact(definition["properties"][name])
        keys = get_args(next(iter(get_args(hints[name])), None))
        if "additionalProperties" in value and keys:
            # A table whose keys are a few texts has all of them.
            value = _object(dict.fromkeys(keys, value["additionalProperties"]), keys)
        if data == IF_KNOWN:
            (value,) = (item for item in value["anyOf"] if item != {"type": "null"})
        if (kind, name) in _VALUES:
            value = {"enum": list(_VALUES[kind, name])}
        properties[name] = value
    return _object(properties, _required(kind))


def _object(properties: dict[str, Json], required: Iterable[str]) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _exact(value: Any) -> Any:
    """The schema of a value, without defaults, and with what numbers are at least."""
    if isinstance(value, list):
        return [_exact(item) for item in value]
    if not isinstance(value, dict):
        return value
    exact = {key: _exact(item) for key, item in value.items() if key != "default"}
    return {"minimum": 0, **exact} if exact.get("type") in ("integer", "number") else exact
