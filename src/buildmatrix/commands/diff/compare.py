"""Comparison of two sides, with notes on everything that could not be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from buildmatrix.commands.diff.architectures import compare_architectures
from buildmatrix.commands.diff.distributions import compare_distributions
from buildmatrix.commands.diff.image import compare_environment, compare_layers
from buildmatrix.commands.diff.judged import compare_findings, compare_verdicts
from buildmatrix.commands.diff.libraries import compare_libraries
from buildmatrix.commands.diff.model import Side
from buildmatrix.commands.diff.sides import group_verdict_architectures
from buildmatrix.phrases import listing
from buildmatrix.reports.diff.model import (
    ArchitectureChange,
    ComparedSide,
    Comparison,
    FindingChanges,
    LayersChange,
    LibraryChange,
    TargetChanges,
    VariableChange,
    VendorChange,
    VerdictChange,
)
from buildmatrix.rules.registry import RULES

#: Codes of the rules about files that only layers show.
_HIDDEN = tuple(rule.code for rule in RULES if rule.needs_layers)
#: Distributions named in a note.
_MOST_NAMED = 6


def compare(before: Side, after: Side) -> Comparison:
    """Compare two sides; the order of the result depends on nothing else."""
    notes: list[str] = []
    findings, verdicts = _compare_judgements(before, after, notes)
    ids, other_ids = before.targets, after.targets
    several = len(ids) > 1 or len(other_ids) > 1
    return Comparison(
        _describe_side(before),
        _describe_side(after),
        TargetChanges(
            tuple(id for id in other_ids if id not in ids),
            tuple(id for id in ids if id not in other_ids),
        )
        if several
        else TargetChanges(),
        compare_distributions(before, after),
        _compare_libraries(before, after, notes),
        _compare_architectures(before, after, notes),
        _compare_vendors(before, after),
        _compare_layers(before, after, notes),
        _compare_environment(before, after, notes),
        findings,
        verdicts,
        tuple(notes),
    )


def _describe_side(side: Side) -> ComparedSide:
    return ComparedSide(
        side.source,
        side.kind,
        side.subject,
        side.backends,
        side.size,
        side.base,
        side.digest,
        len(side.held),
        side.unread,
        side.is_undecided,
    )


def _compare_judgements(
    before: Side, after: Side, notes: list[str]
) -> tuple[FindingChanges | None, tuple[VerdictChange, ...] | None]:
    outcome = "findings and verdicts are not compared"
    for side in (before, after):
        if side.findings is None:
            notes.append(
                f"{outcome}: nothing says which backend {side.source} is for; give --backend"
            )
            return None, None
    if not set(before.backends) & set(after.backends) and before.backends and after.backends:
        notes.append(
            f"{outcome}: {before.source} is for {listing(before.backends)} and {after.source} for "
            f"{listing(after.backends)}; --backend judges both for one"
        )
        return None, None
    changes = compare_findings(*_drop_hidden(before, after, notes))
    return changes, compare_verdicts(before, after)


def _drop_hidden(before: Side, after: Side, notes: list[str]) -> tuple[Side, Side]:
    """Drop findings that only an image's layers show, unless both sides have layers."""
    unread = [side.source for side in (before, after) if side.kind == "image" and not side.layers]
    findings = [
        finding
        for side in (before, after)
        for finding in side.findings or ()
        if finding.rule in _HIDDEN
    ]
    if not unread or not findings:
        return before, after
    notes.append(
        f"{listing(_HIDDEN)} (what later layers hide) is not compared: the layers of "
        f"{listing(unread)} were not read; --layers reads them"
    )
    return _without_hidden(before), _without_hidden(after)


def _without_hidden(side: Side) -> Side:
    return replace(
        side,
        findings=tuple(finding for finding in side.findings or () if finding.rule not in _HIDDEN),
    )


def _compare_libraries(
    before: Side, after: Side, notes: list[str]
) -> tuple[LibraryChange, ...] | None:
    if before.libraries is None or after.libraries is None:
        notes.append(
            "libraries, their versions, and bytes by vendor are not compared: "
            f"{_describe_lack(before, after)} only what rules found"
        )
        return None
    return compare_libraries(before.libraries, after.libraries)


def _describe_lack(before: Side, after: Side) -> str:
    names = dict.fromkeys(side.source for side in (before, after) if side.libraries is None)
    return f"{' and '.join(names)} {'shows' if len(names) == 1 else 'show'}"


def _compare_architectures(
    before: Side, after: Side, notes: list[str]
) -> tuple[ArchitectureChange, ...] | None:
    old, new = before.architectures, after.architectures
    whole = not before.partial and not after.partial
    if old is None or new is None:
        if before.verdicts is None or after.verdicts is None:
            return None
        old, new = (
            group_verdict_architectures(before.verdicts),
            group_verdict_architectures(after.verdicts),
        )
        # Verdicts do not cover files without a distribution.
        whole = False
    partial = before.partial | after.partial
    names = {held.name for held in before.held} & {held.name for held in after.held}
    unknown = sorted({key[0] for key in (*old, *new)} & partial & names)
    if unknown:
        notes.append(
            f"architectures of {listing(unknown, _MOST_NAMED)} are not compared, and bytes by "
            "vendor count only what was read of them: not all of their files were; --deep reads "
            "them"
        )
    return compare_architectures(old, new, {"", *names} - partial, whole=whole)


def _compare_vendors(before: Side, after: Side) -> tuple[VendorChange, ...] | None:
    old, new = before.vendors, after.vendors
    if old is None or new is None:
        return None
    return tuple(
        VendorChange(*key, old.get(key, 0), new.get(key, 0)) for key in sorted({*old, *new})
    )


def _compare_layers(before: Side, after: Side, notes: list[str]) -> LayersChange | None:
    if before.kind != "image" or after.kind != "image":
        return None
    if before.layers is None or after.layers is None:
        unknown = [side.source for side in (before, after) if side.layers is None]
        notes.append(f"layers are not compared: those of {listing(unknown)} were not read")
        return None
    return compare_layers(before.layers, after.layers)


def _compare_environment(
    before: Side, after: Side, notes: list[str]
) -> tuple[VariableChange, ...] | None:
    old: Mapping[str, str] | None = before.environment
    new: Mapping[str, str] | None = after.environment
    if old is None or new is None:
        if (before.kind == "image") != (after.kind == "image"):
            notes.append("layers and environment are not compared: only one side is an image")
        return None
    return compare_environment(old, new)
