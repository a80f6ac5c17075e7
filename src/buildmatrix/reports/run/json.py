"""The report as JSON, the format of docs/contract.md. `reports.run.schema` is its schema."""

from __future__ import annotations

import json
from typing import TypeAlias

from buildmatrix.catalogue.model import Evidence
from buildmatrix.reports.run.model import SCHEMA, TOOL, Difference, FixesTried, Report
from buildmatrix.rules.model import GATES, AuditTotals, Finding, Fix, TargetResult, Verdict
from buildmatrix.vulnerabilities.model import Advisory

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
        "findings": [finding(one) for one in report.findings],
        "unread": [{"path": one.path, "why": one.why} for one in report.unread],
        "stats": {
            "files": stats.files,
            "binaries": stats.binaries,
            "bytes_total": stats.bytes_total,
            "bytes_read": stats.bytes_read,
            "seconds": round(stats.seconds, 3),
            "cached": stats.cached,
        },
        **({"fixes": _fixes(report.fixes)} if report.fixes is not None else {}),
        **({"diff": _difference(report.difference)} if report.difference is not None else {}),
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
        "left_out": one.left_out,
        "audit": totals(one.audit) if one.audit is not None else None,
        "push": one.push,
        "bases": {name: one.bases[name] for name in sorted(one.bases)},
    }


def totals(one: AuditTotals) -> Json:
    """What an audit added up."""
    return {
        "download": one.download,
        "installed": one.installed,
        "foreign_download": one.foreign_download,
        "foreign_installed": one.foreign_installed,
        "foreign_at_least": one.foreign_at_least,
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
        "depth": one.depth,
        "download": one.download,
        "foreign_download": one.foreign_download,
        "foreign_at_least": one.foreign_at_least,
        "open": one.open,
        "certain": one.certain,
        "may_be": one.may_be,
        "sha256": one.sha256,
    }


def finding(one: Finding) -> Json:
    """One finding as plain values."""
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
        "at_least": one.at_least,
        "fix": _fix(one.fix) if one.fix is not None else None,
        "fingerprint": one.fingerprint,
        "waived": one.waived,
        "also": list(one.also),
        "advisories": [_advisory(item) for item in one.advisories],
    }


def _advisory(one: Advisory) -> Json:
    return {
        "id": one.id,
        "aliases": list(one.aliases),
        "fixed": list(one.fixed),
        "description": one.description,
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
    trial = fix.tried
    return {
        "kind": fix.kind,
        "text": fix.text,
        "patch": fix.patch,
        "tried": None
        if trial is None
        else {
            "works": trial.works,
            "outcome": trial.outcome,
            "saved_download": trial.saved_download,
            "saved_installed": trial.saved_installed,
        },
    }


def _difference(difference: Difference) -> Json:
    # That module has the formats of comparisons, which have findings as they are written here.
    from buildmatrix.reports.run import revision_json

    return revision_json.document(difference)


def _fixes(fixes: FixesTried) -> Json:
    return {
        "patch": fixes.patch,
        "files": list(fixes.files),
        "written": fixes.written,
        "saved": [
            {"target": one.target, "download": one.download, "installed": one.installed}
            for one in fixes.saved
        ],
        "notes": list(fixes.notes),
    }
