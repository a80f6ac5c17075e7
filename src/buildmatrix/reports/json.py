"""The report as JSON: the format of docs/contract.md. `reports.schema` says what it may hold."""

from __future__ import annotations

import json
from typing import TypeAlias

from buildmatrix.catalogue.model import Evidence
from buildmatrix.reports.model import SCHEMA, TOOL, Report
from buildmatrix.rules.model import GATES, Finding, Fix, TargetResult, Verdict

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"


def render(report: Report) -> str:
    """The report as one JSON document; the same report gives the same bytes."""
    return json.dumps(document(report), indent=2, ensure_ascii=False) + "\n"


def document(report: Report) -> dict[str, Json]:
    """The report as plain values, in the order of the contract."""
    stats = report.stats
    return {
        "schema": SCHEMA,
        "tool": {"name": TOOL, "version": report.version, "catalogue": report.catalogue},
        "subject": report.subject,
        "targets": [_target(one) for one in report.targets],
        "distributions": [_verdict(one) for one in report.distributions],
        "findings": [_finding(one) for one in report.findings],
        "unread": [{"path": one.path, "why": one.why} for one in report.unread],
        "stats": {
            "files": stats.files,
            "binaries": stats.binaries,
            "bytes_total": stats.bytes_total,
            "bytes_read": stats.bytes_read,
            "seconds": round(stats.seconds, 3),
            "cached": stats.cached,
        },
    }


def _target(one: TargetResult) -> Json:
    return {
        "id": one.id,
        "backend": one.backend,
        "image": one.image,
        "digest": one.digest,
        "gates": {gate: one.gates.get(gate, "not-run") for gate in GATES},
        "size": one.size,
        "seconds": round(one.seconds, 3),
        "cached": one.cached,
        "log": one.log,
        "error": one.error,
        "smoke_not_run": list(one.smoke_not_run),
    }


def _verdict(one: Verdict) -> Json:
    return {
        "name": one.name,
        "version": one.version,
        "backend": one.backend,
        "verdict": one.verdict,
        "reason": one.reason,
        "foreign_bytes": one.foreign_bytes,
        "vendors": list(one.vendors),
        "architectures": {
            vendor: list(architectures) for vendor, architectures in one.architectures.items()
        },
    }


def _finding(one: Finding) -> Json:
    return {
        "rule": one.rule,
        "name": one.name,
        "severity": one.severity,
        "target": one.target,
        "backend": one.backend,
        "vendor": one.vendor,
        "distribution": one.distribution,
        "version": one.version,
        "path": one.path,
        "message": one.message,
        "evidence": [_evidence(item) for item in one.evidence],
        "chain": list(one.chain),
        "fix": _fix(one.fix) if one.fix is not None else None,
        "fingerprint": one.fingerprint,
        "waived": one.waived,
    }


def _evidence(item: Evidence) -> Json:
    return {
        "kind": item.kind,
        "path": item.path,
        "detail": item.detail,
        "offset": item.offset,
        "confidence": item.confidence,
        "vendor": item.vendor,
        "backend": item.backend,
        "role": item.role,
        "where": item.where,
        "weight": item.weight,
        "toolkit": item.toolkit,
        "size": item.size,
        "distribution": item.distribution,
        "architectures": list(item.architectures),
    }


def _fix(fix: Fix) -> Json:
    return {"kind": fix.kind, "text": fix.text, "patch": fix.patch}
