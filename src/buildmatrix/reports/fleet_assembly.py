"""A fleet report from its results, and its exit code.

Images are matched by repository, digest and backend, and then by name: behind a moved tag is the
same image, built again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from msgspec import structs

from buildmatrix import __version__
from buildmatrix.base.data import replace
from buildmatrix.base.errors import EXIT_FINDINGS, UndecidedError, most_severe
from buildmatrix.base.text import count, each_text, shown
from buildmatrix.judge.acceptance import FailOn
from buildmatrix.judge.model import NODE_STATES, SEVERITY_RANK
from buildmatrix.reports.fleet import (
    Change,
    ChangeEnd,
    FleetChange,
    FleetDrift,
    FleetFinding,
    FleetFit,
    FleetReport,
    FleetResult,
    FleetState,
    FleetWork,
    bytes_more,
    finding_order,
)
from buildmatrix.reports.run import ReportTool

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


# Texts


def clean(text: str) -> str:
    """A foreign text as a report keeps it: without secrets, and fit to be read again.

    Half a surrogate pair, as a path may hold, is in no JSON that a strict reader takes.
    """
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return shown(text)


# Exit code, by the contract


def exit_code(report: FleetReport, fail_on: FailOn = "error", strict: bool = False) -> int:
    """1 for findings, 3 where something was not judged or not looked at; 0 for neither.

    With `strict`, what is undecided counts as a finding.
    """
    codes = []
    if any(fails(finding, fail_on) for result in report.results for finding in result.findings):
        codes.append(EXIT_FINDINGS)
    if is_undecided(report):
        codes.append(EXIT_FINDINGS if strict else UndecidedError.exit_code)
    return most_severe(codes)


def fails(finding: FleetFinding, fail_on: FailOn) -> bool:
    """Return True if a finding makes a run fail that fails on `fail_on`."""
    if fail_on == "never" or finding.waived is not None:
        return False
    return SEVERITY_RANK[finding.severity] >= SEVERITY_RANK[fail_on]


def is_undecided(report: FleetReport) -> bool:
    """Return True if some part of the fleet is undecided."""
    return bool(report.missing) or any(item.state == "undecided" for item in report.results)


# One report from results as they arrive: each image once, in an order independent of arrival


Value = TypeVar("Value")

#: Of two results about the same image, the first of these counts: what is known of its bytes does
#: not become unknown as somebody else could not read them.
_COUNTS: Mapping[FleetState, int] = {"failed": 0, "passed": 1, "undecided": 2}


def assemble(
    subject: str,
    results: Iterable[FleetResult],
    catalogue: str,
    *,
    would_run_on: Iterable[str] = (),
    missing: Iterable[str] = (),
    notes: Iterable[str] = (),
    work: FleetWork | None = None,
    since: FleetReport | None = None,
) -> FleetReport:
    """The report of a run: the same for the same results, in whatever order they came.

    Results with one `key` are one: their places, names and node classes are put together, and
    containers of different places are added. What could not be resolved by a name that another
    result has is left out. Secrets of addresses are taken out of all texts.

    Args:
        subject: what was named: `registry:HOST/PREFIX/*`, a file, a cluster.
        results: of all images; they are held once, however many there are.
        catalogue: the date of the catalogue that judged.
        would_run_on: node classes that were asked about.
        missing: what was not looked at, and why; a sentence each.
        notes: what was left out by request; a sentence each.
        work: what the run cost.
        since: an earlier report, to say what changed.
    """
    pool = _Pool()
    same: dict[tuple[str, ...], list[FleetResult]] = {}
    for result in results:
        held = pool.result(result)
        same.setdefault((held.kind, *held.key), []).append(held)
    merged = _drop_resolved([_merge(group) for group in same.values()])
    report = FleetReport(
        tool=ReportTool(version=__version__, catalogue=clean(catalogue)),
        subject=clean(subject),
        results=tuple(sorted(merged, key=_place)),
        would_run_on=tuple(dict.fromkeys(map(clean, would_run_on))),
        missing=tuple(sorted(set(map(clean, missing)))),
        notes=tuple(sorted(set(map(clean, notes)))),
        work=work or FleetWork(),
    )
    return report if since is None else replace(report, drift=drift_between(since, report))


class _Pool:
    """Values that many results share, once, and without secrets."""

    def __init__(self) -> None:
        self._held: dict[object, object] = {}

    def value(self, value: Value) -> Value:
        """The value, or its equal that was there before."""
        held = self._held.get(value)
        if held is None:
            self._held[value] = held = each_text(value, clean)
        return held  # type: ignore[return-value]  # Of the same type: `each_text` keeps it.

    def result(self, result: FleetResult) -> FleetResult:
        """The result with its lists in their order."""
        parts = structs.asdict(result)
        for name in ("names", "places", "node_classes"):
            parts[name] = tuple(sorted(set(parts[name])))
        parts |= {
            "vendors": tuple(
                sorted(result.vendors, key=lambda item: (-item.wasted, -item.size, item.vendor))
            ),
            "findings": tuple(sorted(set(result.findings), key=finding_order)),
            "fits": tuple(sorted(set(result.fits), key=lambda fit: fit.node)),
        }
        for name, value in parts.items():
            if isinstance(value, tuple):
                parts[name] = tuple(map(self.value, value))
            elif isinstance(value, str):
                parts[name] = self.value(value)
        return FleetResult(**parts)


def _place(result: FleetResult) -> tuple[object, ...]:
    return (result.repository, result.names, result.digest, result.platform, result.backend)


def _merge(group: Sequence[FleetResult]) -> FleetResult:
    """Results about the same image and backend as one."""
    if len(group) == 1:
        return group[0]
    first = min(group, key=lambda item: (_COUNTS[item.state], repr(item)))
    by_place: dict[tuple[object, ...], int] = {}
    for result in group:
        place = (result.names, result.places)
        by_place[place] = max(by_place.get(place, 0), result.containers)
    return replace(
        first,
        names=_union(result.names for result in group),
        places=_union(result.places for result in group),
        node_classes=_union(result.node_classes for result in group),
        containers=sum(by_place.values()),
        owner=first.owner or min(filter(None, (result.owner for result in group)), default=""),
        fits=_worst(fit for result in group for fit in result.fits),
    )


def _union(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(sorted({name for several in names for name in several}))


def _worst(fits: Iterable[FleetFit]) -> tuple[FleetFit, ...]:
    """Return the worst state on each node class."""
    by_node: dict[str, FleetFit] = {}
    for fit in sorted(fits, key=lambda fit: (NODE_STATES.index(fit.state), fit.reasons)):
        by_node[fit.node] = fit
    return tuple(by_node[node] for node in sorted(by_node))


def _drop_resolved(results: Sequence[FleetResult]) -> Iterable[FleetResult]:
    """Drop unresolved names that another result has."""
    names = {
        (result.repository, name) for result in results if result.digest for name in result.names
    }
    for result in results:
        is_resolved = result.digest or not result.names or result.kind == "lock"
        if is_resolved or any((result.repository, name) not in names for name in result.names):
            yield result
