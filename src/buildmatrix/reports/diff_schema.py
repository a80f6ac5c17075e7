"""The JSON schemas of comparisons and of drift (`buildmatrix schema diff|drift`)."""

from __future__ import annotations

from typing import get_args

from buildmatrix.comparison import drift
from buildmatrix.comparison.model import SCHEMA, Change, Kind, VersionOf
from buildmatrix.reports.json import Json
from buildmatrix.reports.model import TOOL
from buildmatrix.reports.schema import (
    _COUNT,
    _TEXT,
    _list,
    _object,
    _one_of,
    _or_null,
    finding,
)
from buildmatrix.rules.model import VerdictName

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_CHANGE = _one_of(get_args(Change))
_TEXTS = _list(_TEXT)
_MAYBE_COUNT = _or_null(_COUNT)
_MAYBE_TEXT = _or_null(_TEXT)
_TRUTH: Json = {"type": "boolean"}


def schema() -> dict[str, Json]:
    """The schema of a comparison. Objects are closed: what is not listed does not occur."""
    return {
        "$schema": _DRAFT,
        "title": "A comparison of buildmatrix",
        **_object(
            schema={"const": SCHEMA},
            tool=_object(name={"const": TOOL}, version=_TEXT),
            before=_end(),
            after=_end(),
            targets=_object(added=_TEXTS, removed=_TEXTS),
            distributions=_object(same=_COUNT, changes=_list(_distribution())),
            libraries=_or_null(_list(_library())),
            architectures=_or_null(
                _list(_object(distribution=_MAYBE_TEXT, vendor=_TEXT, gained=_TEXTS, lost=_TEXTS))
            ),
            vendors=_or_null(
                _list(_object(vendor=_TEXT, backend=_TEXT, before=_COUNT, after=_COUNT))
            ),
            layers=_or_null(_layers()),
            environment=_or_null(
                _list(_object(change=_CHANGE, name=_TEXT, before=_MAYBE_TEXT, after=_MAYBE_TEXT))
            ),
            findings=_or_null(
                _object(
                    same=_COUNT,
                    new=_list(finding()),
                    gone=_list(finding()),
                    changed=_list(_object(before=finding(), after=finding())),
                )
            ),
            verdicts=_or_null(_list(_verdict())),
            notes=_TEXTS,
        ),
    }


def _end() -> Json:
    return _object(
        source=_TEXT,
        kind=_one_of(get_args(Kind)),
        subject=_TEXT,
        backends=_TEXTS,
        size=_MAYBE_COUNT,
        base=_MAYBE_TEXT,
        digest=_MAYBE_TEXT,
        distributions=_COUNT,
        unread=_list(_object(path=_TEXT, why=_TEXT)),
        is_undecided=_TRUTH,
    )


def _distribution() -> Json:
    return _object(
        change=_CHANGE,
        name=_TEXT,
        backend=_TEXT,
        before=_TEXTS,
        after=_TEXTS,
        size_before=_MAYBE_COUNT,
        size_after=_MAYBE_COUNT,
        step=_one_of(("major", "minor", "patch", "local", "bytes", "")),
        is_downgrade=_TRUTH,
        details=_TEXTS,
        requires_added=_TEXTS,
        requires_removed=_TEXTS,
    )


def _library() -> Json:
    return _object(
        change=_CHANGE,
        name=_TEXT,
        vendor=_TEXT,
        backend=_TEXT,
        role=_TEXT,
        before=_TEXTS,
        after=_TEXTS,
        version_of=_one_of(get_args(VersionOf)),
        distributions=_TEXTS,
        major=_TEXT,
        size_before=_COUNT,
        size_after=_COUNT,
        paths=_TEXTS,
    )


def _layers() -> Json:
    return _object(
        before=_COUNT,
        after=_COUNT,
        same=_COUNT,
        hidden_before=_COUNT,
        hidden_after=_COUNT,
        changes=_list(
            _object(
                change=_CHANGE,
                index=_COUNT,
                instruction=_TEXT,
                size_before=_MAYBE_COUNT,
                size_after=_MAYBE_COUNT,
            )
        ),
    )


def _verdict() -> Json:
    verdict = _or_null(_one_of(get_args(VerdictName)))
    return _object(
        name=_TEXT,
        backend=_TEXT,
        before=verdict,
        after=verdict,
        reason=_TEXT,
        foreign_before=_COUNT,
        foreign_after=_COUNT,
    )


def drift_schema() -> dict[str, Json]:
    """The schema of drift between targets."""
    return {
        "$schema": _DRAFT,
        "title": "Drift between the targets of buildmatrix",
        **_object(
            schema={"const": drift.SCHEMA},
            tool=_object(name={"const": TOOL}, version=_TEXT),
            targets=_TEXTS,
            same=_COUNT,
            drift=_list(_drift(None)),
            explained=_list(_drift(_TEXT)),
            unresolved=_TEXTS,
            stale=_TEXTS,
        ),
    }


def _drift(reason: Json) -> Json:
    pinned = _object(version=_TEXT, index=_MAYBE_TEXT, targets=_TEXTS, chain=_TEXTS)
    more = {} if reason is None else {"reason": reason}
    return _object(name=_TEXT, pinned=_list(pinned), **more)
