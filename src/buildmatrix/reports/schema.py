"""The JSON schema of a report (`buildmatrix schema report`), JSON Schema draft 2020-12."""

from __future__ import annotations

from typing import get_args

from buildmatrix.catalogue.model import Confidence, EvidenceKind, Weight, Where
from buildmatrix.reports.json import Json
from buildmatrix.reports.model import SCHEMA, TOOL
from buildmatrix.rules.model import GATES, Depth, GateState, Severity, VerdictName
from buildmatrix.rules.registry import RULES

_TEXT: Json = {"type": "string"}
_COUNT: Json = {"type": "integer", "minimum": 0}
_SECONDS: Json = {"type": "number", "minimum": 0}
#: Bytes less; negative for more.
_BYTES: Json = {"type": "integer"}


def schema() -> dict[str, Json]:
    """The schema. Objects are closed: what is not listed does not occur."""
    document: dict[str, Json] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A report of buildmatrix",
        **_object(
            schema={"const": SCHEMA},
            tool=_object(name={"const": TOOL}, version=_TEXT, catalogue=_TEXT),
            subject=_TEXT,
            targets=_list(_target()),
            distributions=_list(_distribution()),
            findings=_list(finding()),
            unread=_list(_object(path=_TEXT, why=_TEXT)),
            stats=_object(
                files=_COUNT,
                binaries=_COUNT,
                bytes_total=_COUNT,
                bytes_read=_COUNT,
                seconds=_SECONDS,
                cached=_COUNT,
            ),
        ),
    }
    # Only of `audit --fix` and of `audit --diff`.
    properties = document["properties"]
    assert isinstance(properties, dict)
    properties |= {"fixes": _fixes(), "diff": _difference()}
    return document


def _fixes() -> dict[str, Json]:
    return _object(
        patch=_TEXT,
        files=_list(_TEXT),
        written={"type": "boolean"},
        saved=_list(_object(target=_TEXT, download=_BYTES, installed=_BYTES)),
        notes=_list(_TEXT),
    )


def _difference() -> Json:
    # That module has the formats of comparisons, which have findings as they are described here.
    from buildmatrix.reports import difference_json

    return difference_json.schema()


def _target() -> dict[str, Json]:
    return _object(
        id=_TEXT,
        backend=_TEXT,
        image=_or_null(_TEXT),
        digest=_or_null(_TEXT),
        gates=_object(**{gate: _one_of(get_args(GateState)) for gate in GATES}),
        size=_or_null(_COUNT),
        seconds=_SECONDS,
        cached={"type": "boolean"},
        log=_or_null(_TEXT),
        error=_or_null(_TEXT),
        smoke_not_run=_list(_TEXT),
        audit=_or_null(TOTALS),
    )


def _distribution() -> dict[str, Json]:
    return _object(
        name=_TEXT,
        version=_TEXT,
        backend=_TEXT,
        verdict=_one_of(get_args(VerdictName)),
        reason=_TEXT,
        foreign_bytes=_COUNT,
        vendors=_list(_TEXT),
        architectures={"type": "object", "additionalProperties": _list(_TEXT)},
        depth=_or_null(_one_of(get_args(Depth))),
        download=_or_null(_COUNT),
        foreign_download=_or_null(_COUNT),
        open=_or_null(_TEXT),
        certain={"type": "boolean"},
        sha256=_or_null(_TEXT),
    )


def finding() -> dict[str, Json]:
    """The schema of one finding."""
    return _object(
        rule=_one_of(tuple(rule.code for rule in RULES)),
        name=_one_of(tuple(rule.name for rule in RULES)),
        severity=_one_of(get_args(Severity)),
        target=_TEXT,
        backend=_TEXT,
        vendor=_or_null(_TEXT),
        distribution=_or_null(_TEXT),
        version=_or_null(_TEXT),
        path=_or_null(_TEXT),
        message=_TEXT,
        evidence=_list(
            _object(
                kind=_one_of(get_args(EvidenceKind)),
                path=_TEXT,
                detail=_TEXT,
                offset=_or_null(_COUNT),
                confidence=_one_of(get_args(Confidence)),
                vendor=_TEXT,
                backend=_TEXT,
                role=_TEXT,
                where=_one_of(get_args(Where)),
                weight=_one_of(get_args(Weight)),
                toolkit=_or_null(_TEXT),
                size=_COUNT,
                distribution=_or_null(_TEXT),
                architectures=_list(_TEXT),
            )
        ),
        chain=_list(_TEXT),
        fix=_or_null(
            _object(
                kind=_TEXT,
                text=_TEXT,
                patch=_or_null(_TEXT),
                tried=_or_null(
                    _object(
                        works=_or_null({"type": "boolean"}),
                        outcome=_TEXT,
                        saved_download=_BYTES,
                        saved_installed=_BYTES,
                    )
                ),
            )
        ),
        fingerprint={"type": "string", "pattern": "^[0-9a-f]{32}$"},
        waived=_or_null(_TEXT),
        advisories=_list(
            _object(id=_TEXT, aliases=_list(_TEXT), fixed=_list(_TEXT), description=_TEXT)
        ),
    )


def _object(**properties: Json) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _or_null(value: Json) -> Json:
    return {"anyOf": [value, {"type": "null"}]}


def _one_of(values: tuple[str, ...]) -> Json:
    return {"enum": list(values)}


#: What an audit adds up.
TOTALS = _object(
    download=_COUNT, installed=_COUNT, foreign_download=_COUNT, foreign_installed=_COUNT
)
