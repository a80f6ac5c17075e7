"""Changes of a fleet's images since an earlier report.

Images are matched by repository, digest and backend, and then by name: behind a moved tag is the
same image, built again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from buildmatrix.base.text import count
from buildmatrix.reports.fleet.model import (
    Change,
    ChangeEnd,
    FleetChange,
    FleetDrift,
    FleetReport,
    FleetResult,
    FleetState,
)

_Key: TypeAlias = tuple[str, ...]
_Name: TypeAlias = tuple[str, str, str, str, str]

#: The greater, the worse.
_RANK: Mapping[FleetState, int] = {"passed": 0, "undecided": 1, "failed": 2}
#: The order in which people want to read them.
_ORDER: Mapping[Change, int] = {"worse": 0, "new": 1, "changed": 2, "better": 3, "gone": 4}


def drift_between(before: FleetReport, after: FleetReport) -> FleetDrift:
    """Return the changes from one report to the next, whatever order their results are in."""
    changes: list[FleetChange] = []
    same = rebuilt = 0
    for earlier, later in _pairs(before.results, after.results):
        change = _change(earlier, later)
        if change is not None:
            changes.append(change)
        elif earlier is not None and later is not None and earlier.digest != later.digest:
            rebuilt += 1
        else:
            same += 1
    return FleetDrift(
        subject=before.subject,
        tool=before.tool,
        same=same,
        rebuilt=rebuilt,
        changes=tuple(sorted(changes, key=_order_change)),
        notes=tuple(_notes(before, after, changes)),
    )


def bytes_more(change: FleetChange) -> int:
    """Unused bytes that a pull has more than before; negative for less."""
    before = change.before.unusable_download if change.before is not None else 0
    return (change.after.unusable_download if change.after is not None else 0) - before


def _pairs(
    before: Iterable[FleetResult], after: Iterable[FleetResult]
) -> Iterator[tuple[FleetResult | None, FleetResult | None]]:
    """Pair the results of both sides; each occurs once."""
    earlier = {_key(result): result for result in before}
    named: dict[_Name, _Key] = {
        name: key for key in sorted(earlier) for name in _names(earlier[key])
    }
    gone = dict(earlier)
    left: list[FleetResult] = []
    for result in sorted(after, key=_key):
        match = gone.pop(_key(result), None)
        if match is None:
            left.append(result)
        else:
            yield match, result
    for result in left:
        # The name that most of its names were held by; of several, the first.
        holders = [key for name in _names(result) if (key := named.get(name)) in gone]
        holder = max(sorted(set(holders)), key=holders.count, default=None)
        yield (gone.pop(holder) if holder is not None else None), result
    for key in sorted(gone):
        yield gone[key], None


def _key(result: FleetResult) -> _Key:
    return (result.kind, *result.key)


def _names(result: FleetResult) -> list[_Name]:
    """Return the names by which the image can be found under another digest."""
    about = result.kind, result.repository, result.platform, result.backend
    return [(*about, name) for name in result.names]


def _change(before: FleetResult | None, after: FleetResult | None) -> FleetChange | None:
    """Return the change of an image; None if nothing that counts is different."""
    about = after or before
    assert about is not None
    was, now = _end(before), _end(after)
    kind: Change
    if was is None or now is None:
        kind = "new" if was is None else "gone"
    elif was.state != now.state:
        kind = "worse" if _RANK[now.state] > _RANK[was.state] else "better"
    elif (was.unusable_download, was.refused) != (now.unusable_download, now.refused):
        kind = "changed"
    else:
        return None
    return FleetChange(
        change=kind,
        title=about.title,
        backend=about.backend,
        owner=about.owner,
        before=was,
        after=now,
    )


def _end(result: FleetResult | None) -> ChangeEnd | None:
    if result is None:
        return None
    return ChangeEnd(
        digest=result.digest,
        state=result.state,
        download=result.download,
        unusable_download=result.unusable_download,
        refused=tuple(fit.node for fit in result.fits if fit.state == "refused"),
    )


def _order_change(change: FleetChange) -> tuple[object, ...]:
    digests = tuple(end.digest if end else "" for end in (change.after, change.before))
    return (_ORDER[change.change], -bytes_more(change), change.title, change.backend, digests)


def _notes(
    before: FleetReport, after: FleetReport, changes: Iterable[FleetChange]
) -> Iterator[str]:
    """Yield reasons why the two reports are hard to compare."""
    if before.tool.catalogue != after.tool.catalogue:
        yield (
            f"the catalogue changed from {before.tool.catalogue or 'an unknown day'} to "
            f"{after.tool.catalogue or 'an unknown day'}: a verdict may have changed "
            "without its image"
        )
    if before.tool.version != after.tool.version:
        yield (
            f"buildmatrix changed from {before.tool.version} to {after.tool.version}: a verdict "
            "may have changed without its image"
        )
    if before.subject != after.subject:
        yield f"the earlier report is about {before.subject}, and this one about {after.subject}"
    gone = sum(change.change == "gone" for change in changes)
    new = sum(change.change == "new" for change in changes)
    if after.missing and gone:
        yield (
            f"this run did not read everything: some of {count(gone, 'image')} that are gone "
            "may still exist"
        )
    if before.missing and new:
        yield (
            f"the earlier run did not read everything: some of {count(new, 'image')} that are "
            "new may have existed"
        )
    if set(before.would_run_on) != set(after.would_run_on):
        yield "the node classes differ: failures on them are not compared"
