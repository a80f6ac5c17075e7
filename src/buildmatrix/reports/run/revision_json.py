"""What a change brings (`audit --diff`), as JSON: the key `diff` of a report."""

from __future__ import annotations

from buildmatrix.reports.diff import json as comparison_json
from buildmatrix.reports.diff import schema as comparison_schema
from buildmatrix.reports.json_schema import TEXT, closed, list_of, or_null
from buildmatrix.reports.run.json import Json, totals
from buildmatrix.reports.run.model import Difference, TargetDifference
from buildmatrix.reports.run.schema import TOTALS

#: Parts of a comparison that locks have.
_PARTS = ("findings", "distributions", "verdicts")


def document(difference: Difference) -> Json:
    """The difference as plain values; the parts are those of `buildmatrix/diff/1`."""
    return {
        "ref": difference.ref,
        "commit": difference.commit,
        "targets": [_target(one) for one in difference.targets],
        "notes": list(difference.notes),
    }


def _target(one: TargetDifference) -> Json:
    whole = comparison_json.document(one.comparison)
    return {
        "id": one.target,
        "backend": one.backend,
        "before": totals(one.before) if one.before is not None else None,
        "after": totals(one.after) if one.after is not None else None,
        **{part: whole[part] for part in _PARTS},
    }


def schema() -> Json:
    """What `document` gives."""
    whole = comparison_schema.schema()["properties"]
    assert isinstance(whole, dict)
    return closed(
        ref=TEXT,
        commit=TEXT,
        targets=list_of(
            closed(
                id=TEXT,
                backend=TEXT,
                before=or_null(TOTALS),
                after=or_null(TOTALS),
                **{part: whole[part] for part in _PARTS},
            )
        ),
        notes=list_of(TEXT),
    )
