"""Causes of most of a report: findings that one step fixes, and their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from buildmatrix.reports.run.groups import FindingGroup, SharedText, cure_key
from buildmatrix.reports.run.model import Report


@dataclass(frozen=True, slots=True)
class Cause:
    """Groups of findings with one cure."""

    #: What brings it, as far as a chain says so: `torch 2.9.1 brings nvidia-cudnn-cu12 9.10 ...`.
    title: str
    #: The one that weighs most.
    first: FindingGroup
    findings: int
    #: In the order of the report.
    targets: tuple[str, ...]
    #: Bytes of no use, of all targets together; 0 where nothing of it is known to be wasted.
    wasted: int
    cures: tuple[SharedText, ...]


def causes(report: Report, groups: Iterable[FindingGroup]) -> Sequence[Cause]:
    """The causes of open errors and warnings, what wastes most first, then what says most."""
    alike: dict[frozenset[str], list[FindingGroup]] = {}
    for number, group in enumerate(groups):
        if group.first.waived is not None or group.first.severity == "note":
            continue
        keys = frozenset(filter(None, map(cure_key, group.findings))) or {f"\0{number}"}
        # What is cured for one target by the step that cures more on others is one thing to do.
        key = next((held for held in alike if keys <= held), frozenset(keys))
        alike.setdefault(key, []).append(group)
    wasted = _wasted(report)
    order = {target.id: place for place, target in enumerate(report.targets)}
    made = [_cause(group, wasted, order, audited=report.is_audit) for group in alike.values()]
    return sorted(
        made,
        key=lambda cause: (cause.first.first.severity != "error", -cause.wasted, -cause.findings),
    )


def _cause(
    groups: Sequence[FindingGroup],
    wasted: Mapping[tuple[str, str], int],
    order: Mapping[str, int],
    *,
    audited: bool,
) -> Cause:
    first = max(groups, key=lambda group: group.bytes)
    places = {place for group in groups for place in _places(group)}
    targets = dict.fromkeys(target for group in groups for target in group.targets)
    others = dict.fromkeys(
        name
        for group in groups
        for name in (group.first.label or group.first.path or "", *group.others)
        if name
    )
    others.pop(first.first.label or first.first.path or "", None)
    return Cause(
        _title(first, tuple(others)),
        first,
        sum(len(group.findings) for group in groups),
        tuple(sorted(targets, key=lambda target: order.get(target, len(order)))),
        sum(wasted.get(place, 0) for place in places),
        first.cures(audited=audited),
    )


def _title(group: FindingGroup, others: Sequence[str]) -> str:
    first = group.first
    about = first.label or (first.path or "").rpartition("/")[2] or first.name
    asker = first.chain[1] if len(first.chain) > 2 else ""
    if asker and asker != about and first.label:
        rest = len([name for name in others if name != asker])
        return f"{asker} brings {about}{f' and {rest} more' if rest else ''}"
    return f"{about}{f' and {len(others)} more' if others else ''}"


def _places(group: FindingGroup) -> Iterator[tuple[str, str]]:
    """Targets and distributions whose bytes findings are about."""
    for finding in group.findings:
        for target in (finding.target, *finding.also):
            for name in finding.distributions:
                yield target, name
            # What the image's environment says is about no bytes.
            if not finding.distribution and any(item.size for item in finding.evidence):
                yield target, ""


def _wasted(report: Report) -> Mapping[tuple[str, str], int]:
    """Target, distribution -> bytes of no use."""
    return {
        (target.id, part.name): max(0, part.wasted)
        for target in report.targets
        if target.composition is not None
        for part in target.composition.distributions
    }
