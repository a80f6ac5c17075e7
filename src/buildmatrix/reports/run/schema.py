"""The JSON schema of a report (`buildmatrix schema report`), JSON Schema draft 2020-12."""

from __future__ import annotations

from typing import get_args

from buildmatrix.catalogue.model import Confidence, EvidenceKind, Weight, Where
from buildmatrix.reports.json_schema import (
    BYTES,
    COUNT,
    DRAFT,
    SECONDS,
    TEXT,
    TRUTH,
    closed,
    list_of,
    one_of,
    or_null,
    table_of,
)
from buildmatrix.reports.run.json import Json
from buildmatrix.reports.run.model import SCHEMA, TOOL
from buildmatrix.rules.model import GATES, Depth, GateState, Severity, VerdictName
from buildmatrix.rules.registry import RULES


def schema() -> dict[str, Json]:
    """The schema. Objects are closed: what is not listed does not occur."""
    document: dict[str, Json] = {
        "$schema": DRAFT,
        "title": "A report of buildmatrix",
        **closed(
            schema={"const": SCHEMA},
            tool=closed(name={"const": TOOL}, version=TEXT, catalogue=TEXT),
            subject=TEXT,
            targets=list_of(_target()),
            distributions=list_of(_distribution()),
            findings=list_of(finding()),
            unread=list_of(closed(path=TEXT, why=TEXT)),
            stats=closed(
                files=COUNT,
                binaries=COUNT,
                bytes_total=COUNT,
                bytes_read=COUNT,
                seconds=SECONDS,
                cached=COUNT,
            ),
        ),
    }
    # Only of `audit --fix` and of `audit --diff`.
    properties = document["properties"]
    assert isinstance(properties, dict)
    properties |= {"fixes": _fixes(), "diff": _difference()}
    return document


def _fixes() -> dict[str, Json]:
    return closed(
        patch=TEXT,
        files=list_of(TEXT),
        written=TRUTH,
        saved=list_of(closed(target=TEXT, download=BYTES, installed=BYTES)),
        notes=list_of(TEXT),
    )


def _difference() -> Json:
    # That module has the formats of comparisons, which have findings as they are described here.
    from buildmatrix.reports.run import revision_json

    return revision_json.schema()


def _target() -> dict[str, Json]:
    return closed(
        id=TEXT,
        backend=TEXT,
        image=or_null(TEXT),
        digest=or_null(TEXT),
        gates=closed(**{gate: one_of(get_args(GateState)) for gate in GATES}),
        size=or_null(COUNT),
        seconds=SECONDS,
        cached=TRUTH,
        log=or_null(TEXT),
        error=or_null(TEXT),
        smoke_not_run=list_of(TEXT),
        left_out=TEXT,
        audit=or_null(TOTALS),
        push=or_null(one_of(get_args(GateState))),
        bases=table_of(TEXT),
    )


def _distribution() -> dict[str, Json]:
    return closed(
        name=TEXT,
        version=TEXT,
        backend=TEXT,
        verdict=one_of(get_args(VerdictName)),
        reason=TEXT,
        foreign_bytes=COUNT,
        vendors=list_of(TEXT),
        architectures=table_of(list_of(TEXT)),
        depth=or_null(one_of(get_args(Depth))),
        download=or_null(COUNT),
        foreign_download=or_null(COUNT),
        foreign_at_least=TRUTH,
        open=or_null(TEXT),
        certain=TRUTH,
        may_be=or_null(one_of(get_args(VerdictName))),
        sha256=or_null(TEXT),
    )


def finding() -> dict[str, Json]:
    """The schema of one finding."""
    return closed(
        rule=one_of(tuple(rule.code for rule in RULES)),
        name=one_of(tuple(rule.name for rule in RULES)),
        severity=one_of(get_args(Severity)),
        target=TEXT,
        backend=TEXT,
        vendor=or_null(TEXT),
        distribution=or_null(TEXT),
        version=or_null(TEXT),
        path=or_null(TEXT),
        message=TEXT,
        evidence=list_of(
            closed(
                kind=one_of(get_args(EvidenceKind)),
                path=TEXT,
                detail=TEXT,
                offset=or_null(COUNT),
                confidence=one_of(get_args(Confidence)),
                vendor=TEXT,
                backend=TEXT,
                role=TEXT,
                where=one_of(get_args(Where)),
                weight=one_of(get_args(Weight)),
                toolkit=or_null(TEXT),
                size=COUNT,
                distribution=or_null(TEXT),
                architectures=list_of(TEXT),
            )
        ),
        chain=list_of(TEXT),
        at_least=TRUTH,
        fix=or_null(
            closed(
                kind=TEXT,
                text=TEXT,
                patch=or_null(TEXT),
                tried=or_null(
                    closed(
                        works=or_null(TRUTH),
                        outcome=TEXT,
                        saved_download=BYTES,
                        saved_installed=BYTES,
                    )
                ),
            )
        ),
        fingerprint={"type": "string", "pattern": "^[0-9a-f]{32}$"},
        waived=or_null(TEXT),
        also=list_of(TEXT),
        advisories=list_of(
            closed(id=TEXT, aliases=list_of(TEXT), fixed=list_of(TEXT), description=TEXT)
        ),
    )


#: What an audit adds up.
TOTALS = closed(
    download=COUNT,
    installed=COUNT,
    foreign_download=COUNT,
    foreign_installed=COUNT,
    foreign_at_least=TRUTH,
)
