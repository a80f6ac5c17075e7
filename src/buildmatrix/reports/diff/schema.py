"""The JSON schemas of comparisons and of drift (`buildmatrix schema diff|drift`)."""

from __future__ import annotations

from typing import get_args

from buildmatrix.reports.diff import drifts
from buildmatrix.reports.diff.model import SCHEMA, Change, Kind, VersionOf
from buildmatrix.reports.json_schema import (
    COUNT,
    DRAFT,
    TEXT,
    TRUTH,
    closed,
    list_of,
    one_of,
    or_null,
)
from buildmatrix.reports.run.json import Json
from buildmatrix.reports.run.model import TOOL
from buildmatrix.reports.run.schema import finding
from buildmatrix.rules.model import VerdictName

_CHANGE = one_of(get_args(Change))
_TEXTS = list_of(TEXT)
_MAYBE_COUNT = or_null(COUNT)
_MAYBE_TEXT = or_null(TEXT)


def schema() -> dict[str, Json]:
    """The schema of a comparison. Objects are closed: what is not listed does not occur."""
    return {
        "$schema": DRAFT,
        "title": "A comparison of buildmatrix",
        **closed(
            schema={"const": SCHEMA},
            tool=closed(name={"const": TOOL}, version=TEXT),
            before=_end(),
            after=_end(),
            targets=closed(added=_TEXTS, removed=_TEXTS),
            distributions=closed(same=COUNT, changes=list_of(_distribution())),
            libraries=or_null(list_of(_library())),
            architectures=or_null(
                list_of(closed(distribution=_MAYBE_TEXT, vendor=TEXT, gained=_TEXTS, lost=_TEXTS))
            ),
            vendors=or_null(list_of(closed(vendor=TEXT, backend=TEXT, before=COUNT, after=COUNT))),
            layers=or_null(_layers()),
            environment=or_null(
                list_of(closed(change=_CHANGE, name=TEXT, before=_MAYBE_TEXT, after=_MAYBE_TEXT))
            ),
            findings=or_null(
                closed(
                    same=COUNT,
                    new=list_of(finding()),
                    gone=list_of(finding()),
                    changed=list_of(closed(before=finding(), after=finding())),
                )
            ),
            verdicts=or_null(list_of(_verdict())),
            notes=_TEXTS,
        ),
    }


def _end() -> Json:
    return closed(
        source=TEXT,
        kind=one_of(get_args(Kind)),
        subject=TEXT,
        backends=_TEXTS,
        size=_MAYBE_COUNT,
        base=_MAYBE_TEXT,
        digest=_MAYBE_TEXT,
        distributions=COUNT,
        unread=list_of(closed(path=TEXT, why=TEXT)),
        is_undecided=TRUTH,
    )


def _distribution() -> Json:
    return closed(
        change=_CHANGE,
        name=TEXT,
        backend=TEXT,
        before=_TEXTS,
        after=_TEXTS,
        size_before=_MAYBE_COUNT,
        size_after=_MAYBE_COUNT,
        step=one_of(("major", "minor", "patch", "local", "bytes", "")),
        is_downgrade=TRUTH,
        details=_TEXTS,
        requires_added=_TEXTS,
        requires_removed=_TEXTS,
    )


def _library() -> Json:
    return closed(
        change=_CHANGE,
        name=TEXT,
        vendor=TEXT,
        backend=TEXT,
        role=TEXT,
        before=_TEXTS,
        after=_TEXTS,
        version_of=one_of(get_args(VersionOf)),
        distributions=_TEXTS,
        major=TEXT,
        size_before=COUNT,
        size_after=COUNT,
        paths=_TEXTS,
    )


def _layers() -> Json:
    return closed(
        before=COUNT,
        after=COUNT,
        same=COUNT,
        hidden_before=COUNT,
        hidden_after=COUNT,
        changes=list_of(
            closed(
                change=_CHANGE,
                index=COUNT,
                instruction=TEXT,
                size_before=_MAYBE_COUNT,
                size_after=_MAYBE_COUNT,
            )
        ),
    )


def _verdict() -> Json:
    verdict = or_null(one_of(get_args(VerdictName)))
    return closed(
        name=TEXT,
        backend=TEXT,
        before=verdict,
        after=verdict,
        reason=TEXT,
        foreign_before=COUNT,
        foreign_after=COUNT,
    )


def drift_schema() -> dict[str, Json]:
    """The schema of drift between targets."""
    return {
        "$schema": DRAFT,
        "title": "Drift between the targets of buildmatrix",
        **closed(
            schema={"const": drifts.SCHEMA},
            tool=closed(name={"const": TOOL}, version=TEXT),
            targets=_TEXTS,
            same=COUNT,
            drift=list_of(_drift(None)),
            explained=list_of(_drift(TEXT)),
            unresolved=_TEXTS,
            stale=_TEXTS,
        ),
    }


def _drift(reason: Json) -> Json:
    pinned = closed(version=TEXT, index=_MAYBE_TEXT, targets=_TEXTS, chain=_TEXTS)
    more = {} if reason is None else {"reason": reason}
    return closed(name=TEXT, pinned=list_of(pinned), **more)
