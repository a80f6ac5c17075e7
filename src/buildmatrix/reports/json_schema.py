"""The words that the schemas of reports and comparisons are written in (JSON Schema 2020-12)."""

from __future__ import annotations

from buildmatrix.reports.run.json import Json

DRAFT = "https://json-schema.org/draft/2020-12/schema"
TEXT: Json = {"type": "string"}
TRUTH: Json = {"type": "boolean"}
COUNT: Json = {"type": "integer", "minimum": 0}
SECONDS: Json = {"type": "number", "minimum": 0}
#: A difference in bytes; negative for fewer.
BYTES: Json = {"type": "integer"}


def closed(**properties: Json) -> dict[str, Json]:
    """An object that has all of `properties`, and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def table_of(values: Json) -> Json:
    """An object with any keys."""
    return {"type": "object", "additionalProperties": values}


def list_of(items: Json) -> Json:
    """A list."""
    return {"type": "array", "items": items}


def or_null(value: Json) -> Json:
    """`value`, or null where it is not known."""
    return {"anyOf": [value, {"type": "null"}]}


def one_of(values: tuple[str, ...]) -> Json:
    """One of these texts."""
    return {"enum": list(values)}
