"""A comparison as JSON: `buildmatrix/diff/1`. `reports.diff.schema` says what it may hold."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from buildmatrix import __version__
from buildmatrix.reports.diff.model import SCHEMA, Comparison, FindingChange
from buildmatrix.reports.run.json import Json, finding
from buildmatrix.reports.run.model import TOOL


def render(comparison: Comparison) -> str:
    """The comparison as one JSON document; the same comparison gives the same bytes."""
    return json.dumps(document(comparison), indent=2, ensure_ascii=False) + "\n"


def document(comparison: Comparison) -> dict[str, Json]:
    """The comparison as plain values. `null` stands for what was not compared."""
    it = comparison
    return {
        "schema": SCHEMA,
        "tool": {"name": TOOL, "version": __version__},
        "before": asdict(it.before),
        "after": asdict(it.after),
        "targets": {"added": list(it.targets_added), "removed": list(it.targets_removed)},
        "distributions": {
            "same": it.same_distributions,
            "changes": _plain(it.distributions),
        },
        "libraries": _plain(it.libraries),
        "architectures": _plain(it.architectures),
        "vendors": _plain(it.vendors),
        "layers": None if it.layers is None else asdict(it.layers),
        "environment": _plain(it.environment),
        "findings": None if it.findings is None else _findings(it.findings, it.same_findings),
        "verdicts": _plain(it.verdicts),
        "notes": list(it.notes),
    }


def _plain(items: Iterable[Any] | None) -> Json:
    return None if items is None else [asdict(item) for item in items]


def _findings(changes: Iterable[FindingChange], same: int) -> Json:
    new: list[Json] = []
    gone: list[Json] = []
    changed: list[Json] = []
    for change in changes:
        before = finding(change.before) if change.before is not None else None
        after = finding(change.after) if change.after is not None else None
        if before is None:
            new.append(after)
        elif after is None:
            gone.append(before)
        else:
            changed.append({"before": before, "after": after})
    return {"same": same, "new": new, "gone": gone, "changed": changed}
