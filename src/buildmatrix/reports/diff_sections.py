"""Sections of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.text import count, listing, printable, size
from buildmatrix.judge.model import Finding
from buildmatrix.reports import diff, markdown, terminal
from buildmatrix.reports.diff import Comparison, Drifts, FindingChanges
from buildmatrix.reports.markdown import plain
from buildmatrix.reports.sections import (
    Item,
    Row,
    Section,
    cut,
    drop_empty_columns,
    filled,
    limit,
    sentences,
    signed_size,
)

#: Entries of one kind, findings, and what was not read, that are shown without `--all`.
MOST, MOST_FINDINGS, MOST_UNREAD = 30, 20, 10
SIGNS: dict[diff.Change, str] = {"added": "+", "removed": "-", "changed": "~"}
#: Characters of an instruction or a value.
_LONGEST = 120


def sections(comparison: diff.Comparison, *, every: bool) -> Sequence[Section]:
    """All differences, the findings first; kinds without a difference do not appear."""
    is_same = comparison.before.source == comparison.after.source
    return filled(
        *_findings(comparison.findings or FindingChanges(), None if every else MOST_FINDINGS),
        *_differences(comparison, every=every),
        *(
            sentences(
                f"unread-{when}",
                # Two sides of one name are told apart.
                f"Not read in {side.source}{f', {when}' * is_same}",
                (f"{item.path}: {item.why}" for item in side.unread),
                None if every else MOST_UNREAD,
            )
            for when, side in (("before", comparison.before), ("after", comparison.after))
        ),
        sentences("notes", "Not compared", comparison.notes),
    )


def _findings(changes: FindingChanges, most: int | None) -> Iterator[Section]:
    new = tuple(_finding(finding, "new") for finding in changes.new)
    changed = tuple(
        replace(_finding(pair.after, "changed"), before=_severity(pair.before))
        for pair in changes.changed
    )
    gone = tuple(
        replace(_finding(finding, "gone"), chain=(), remedies=()) for finding in changes.gone
    )
    yield limit(Section("added", "New findings", items=new), most)
    title = "Findings whose severity or acceptance changed"
    yield limit(Section("changed", title, items=changed), most)
    yield limit(Section("removed", "Findings that are gone", items=gone, is_folded=True), most)


def _finding(finding: Finding, change: str) -> Item:
    remedies = (f"fix: {finding.fix.text}",) if finding.fix is not None else ()
    if finding.waived is not None:
        remedies = (f"accepted: {finding.waived}",)
    return Item(
        _severity(finding),
        finding.rule,
        finding.name,
        finding.label,
        finding.message,
        chain=finding.chain,
        remedies=remedies,
        change=change,
    )


def _severity(finding: Finding) -> str:
    """Return the severity of a finding, or that it is accepted."""
    return "accepted" if finding.waived is not None else finding.severity


class ChangeRow(Struct, frozen=True):
    """One difference: what it is about, what changed, and what else there is to say."""

    sign: str
    subject: str
    change: str = ""
    more: str = ""
    #: Bytes that it stands for; the largest are shown where not all are.
    weight: int = 0
    is_loud: bool = False
    #: The first to be left out.
    is_quiet: bool = False


def _differences(comparison: diff.Comparison, *, every: bool) -> Iterator[Section]:
    """The differences beside findings, by kind."""
    layers, distributions = comparison.layers, comparison.distributions
    for name, title, rows in (
        ("targets", "Targets", _targets(comparison)),
        ("verdicts", "Verdicts", map(_verdict, comparison.verdicts or ())),
        (
            "distributions",
            _distributions_title(distributions),
            map(_distribution, distributions.changes),
        ),
        ("libraries", "Libraries of vendors", _libraries(comparison.libraries or ())),
        (
            "architectures",
            "Architectures of device code",
            map(_architecture, comparison.architectures or ()),
        ),
        ("sizes", "Bytes", _bytes(comparison)),
        ("layers", _layers_title(layers), map(_layer, layers.changes if layers else ())),
        ("base", "Base image", _base(comparison)),
        ("environment", "Environment", map(_variable, comparison.environment or ())),
    ):
        yield _changes(name, title, list(rows), None if every else MOST)


def _changes(name: str, title: str, rows: Sequence[ChangeRow], most: int | None) -> Section:
    order = sorted(
        range(len(rows)), key=lambda n: (not rows[n].is_loud, rows[n].is_quiet, -rows[n].weight, n)
    )
    chosen = [rows[n] for n in sorted(order[:most])]
    section = Section(
        name,
        title,
        ("name", "change", "more"),
        tuple(
            Row((row.subject, row.change, row.more), sign=row.sign, is_loud=row.is_loud)
            for row in chosen
        ),
        subject=0,
        more=len(rows) - len(chosen),
        is_folded=True,
        is_headed=False,
    )
    return drop_empty_columns(section)


def end(item: diff.ComparedSide) -> str:
    """Describe one side: backends, size, distributions."""
    parts = (
        item.subject,
        f"for {listing(item.backends)}" if item.backends else "",
        size(item.size) if item.size is not None else "",
        count(item.distributions, "distribution"),
    )
    return ", ".join(filter(None, parts))


def summary(comparison: diff.Comparison) -> str:
    """One sentence about the whole."""
    parts = []
    if comparison.findings is not None:
        new, gone = len(comparison.findings.new), len(comparison.findings.gone)
        parts.append(
            f"{count(new, 'finding')} new, {gone} gone, {comparison.findings.same} as before"
        )
    kinds = [change.change for change in comparison.distributions.changes]
    numbers = [f"{kinds.count(kind)} {kind}" for kind in get_args(diff.Change)]
    parts.append(f"distributions: {', '.join(numbers)}, {comparison.distributions.same} the same")
    if comparison.before.size is not None and comparison.after.size is not None:
        more = comparison.after.size - comparison.before.size
        parts.append(
            f"{signed_size(more)} in all" if more else f"{size(comparison.after.size)} as before"
        )
    return "; ".join(parts)


def state_of(comparison: diff.Comparison) -> str:
    """The state of the whole: failed with a new error, passed if nothing is new or unread."""
    findings = comparison.findings
    if findings is not None and any(
        finding.severity == "error" and finding.waived is None for finding in findings.new
    ):
        return "failed"
    if findings is not None and findings.new:
        return "undecided"
    sides = (comparison.before, comparison.after)
    return "undecided" if any(side.is_undecided or side.unread for side in sides) else "passed"


# Rows of each kind


def _targets(comparison: diff.Comparison) -> Iterator[ChangeRow]:
    yield from (ChangeRow("+", id) for id in comparison.targets.added)
    yield from (ChangeRow("-", id) for id in comparison.targets.removed)


def _verdict(change: diff.VerdictChange) -> ChangeRow:
    where = f" on {change.backend}" if change.backend else ""
    sign = "+" if change.before is None else "-" if change.after is None else "~"
    return ChangeRow(
        sign,
        f"{change.name}{where}",
        _arrow(change.before or "", change.after or ""),
        change.reason,
        change.foreign_after,
        change.after in ("bloat", "broken"),
    )


def _distributions_title(distributions: diff.DistributionChanges) -> str:
    differing = len(distributions.changes)
    return f"Distributions ({differing} of {differing + distributions.same} differ)"


def _distribution(change: diff.DistributionChange) -> ChangeRow:
    before, after = listing(change.before), listing(change.after)
    versions = before if before == after else _arrow(before, after)
    if change.is_downgrade:
        versions += " (older)"
    elif change.step == "major":
        versions += " (major)"
    more = list(change.details)
    if change.size_before != change.size_after and None not in (
        change.size_before,
        change.size_after,
    ):
        more.insert(0, _sizes(change.size_before or 0, change.size_after or 0))
    elif change.change != "changed":
        more += [size(s) for s in (change.size_before, change.size_after) if s is not None]
    more += [f"now requires {line}" for line in change.requires_added]
    more += [f"does not require {line} any more" for line in change.requires_removed]
    where = f" on {change.backend}" if change.backend else ""
    weight = abs((change.size_after or 0) - (change.size_before or 0))
    return ChangeRow(
        SIGNS[change.change],
        f"{change.name}{where}",
        versions,
        "; ".join(more),
        weight,
        change.is_downgrade,
        change.step == "bytes",
    )


def _sizes(before: int, after: int) -> str:
    """Both sizes, or the difference where they look the same."""
    shown = size(before), size(after)
    return signed_size(after - before) if shown[0] == shown[1] else f"{shown[0]} -> {shown[1]}"


def _libraries(changes: Iterable[diff.LibraryChange]) -> Iterator[ChangeRow]:
    """Libraries of one distribution that changed alike are one line."""
    groups: dict[tuple[object, ...], list[diff.LibraryChange]] = {}
    for change in changes:
        key = (
            change.change,
            change.backend,
            change.before,
            change.after,
            change.distributions,
            change.major,
        )
        groups.setdefault(key if change.distributions else (*key, change.name), []).append(change)
    for same in groups.values():
        first = same[0]
        before, after = (listing(v or "version unknown" for v in side) for side in
                         (first.before, first.after))  # fmt: skip
        copies = len(first.before), len(first.after)
        text = before if before == after else _arrow(before, after)
        if first.change == "changed" and copies[0] != copies[1]:
            text += f" ({copies[0]} -> {copies[1]} copies)"
        if first.major:
            text += "  MAJOR" if _shows(first) else f"  MAJOR {first.major}"
        more = [first.backend, *first.distributions]
        bytes_before = sum(change.size_before for change in same)
        bytes_after = sum(change.size_after for change in same)
        if bytes_before and bytes_after and bytes_before != bytes_after:
            more.append(_sizes(bytes_before, bytes_after))
        elif bytes_before != bytes_after:
            more.append(size(bytes_before or bytes_after))
        yield ChangeRow(
            SIGNS[first.change],
            listing((change.name for change in same), 3),
            text,
            ", ".join(more),
            abs(bytes_after - bytes_before),
            bool(first.major),
        )


def _shows(change: diff.LibraryChange) -> bool:
    """Return True if the versions themselves show the major change."""
    before, after = (
        "/".join(sorted({version.partition(".")[0] for version in side if version}))
        for side in (change.before, change.after)
    )
    return change.major == f"{before} -> {after}"


def _architecture(change: diff.ArchitectureChange) -> ChangeRow:
    name = change.distribution or "files of no distribution"
    if change.distribution is None:
        name = "everything"
    gained = f"gained {' '.join(change.gained)}" if change.gained else ""
    lost = f"lost {' '.join(change.lost)}" if change.lost else ""
    text = ", ".join(filter(None, (gained, lost)))
    return ChangeRow("~", f"{name} ({change.vendor})", text, is_loud=change.distribution is None)


def _bytes(comparison: diff.Comparison) -> Iterator[ChangeRow]:
    for vendor in comparison.vendors or ():
        if vendor.before != vendor.after:
            yield _bytes_of(f"{vendor.vendor} ({vendor.backend})", vendor.before, vendor.after)
    before, after = comparison.before.size, comparison.after.size
    if before is not None and after is not None and before != after:
        yield _bytes_of("everything", before, after)


def _bytes_of(name: str, before: int, after: int) -> ChangeRow:
    return ChangeRow(
        "~",
        name,
        f"{size(before)} -> {size(after)}",
        signed_size(after - before),
        abs(after - before),
    )


def _layers_title(layers: diff.LayersChange | None) -> str:
    if layers is None:
        return "Layers"
    hidden = ""
    if layers.hidden_before != layers.hidden_after:
        change = f"{size(layers.hidden_before)} -> {size(layers.hidden_after)}"
        hidden = f"; bytes that no container sees: {change}"
    same = f"the lowest {layers.same} are the same" if layers.same else "none is the same"
    return f"Layers ({layers.before} -> {layers.after}, {same}{hidden})"


def _layer(change: diff.LayerChange) -> ChangeRow:
    sizes = [size(s) for s in (change.size_before, change.size_after) if s is not None]
    return ChangeRow(
        SIGNS[change.change],
        f"layer {change.index + 1}",
        " -> ".join(dict.fromkeys(sizes)),
        cut(change.instruction, _LONGEST) or "made by an instruction that the image does not name",
        abs((change.size_after or 0) - (change.size_before or 0)),
    )


def _base(comparison: diff.Comparison) -> Iterator[ChangeRow]:
    before, after = comparison.before.base, comparison.after.base
    if before is not None and after is not None and before != after:
        yield ChangeRow("~", "base", f"{before} -> {after}", is_loud=True)


def _variable(change: diff.VariableChange) -> ChangeRow:
    before, after = (
        cut(value, _LONGEST) if value is not None else "" for value in (change.before, change.after)
    )
    text = f"is another value {after}" if before == after else _arrow(before, after)
    return ChangeRow(SIGNS[change.change], change.name, text)


def _arrow(before: str, after: str) -> str:
    """`a -> b`; the one there is where there is only one."""
    return f"{before} -> {after}" if before and after else before or after


_HINT = "--all lists everything"


def render_table(comparison: Comparison, *, width: int, color: bool, every: bool = False) -> str:
    """The comparison as text, wrapped at `width` columns."""
    paint = terminal.Painter(color)
    ends = [
        f"{sign} {paint(printable(side.source), 'bold')}  {printable(end(side))}"
        for sign, side in (("-", comparison.before), ("+", comparison.after))
    ]
    last = paint.state(state_of(comparison), printable(summary(comparison)), "bold")
    return _table(sections(comparison, every=every), width, paint, "\n".join(ends), last)


def render_drift_table(drifts: Drifts, *, width: int, color: bool, every: bool = False) -> str:
    """The drift as text, wrapped at `width` columns."""
    paint = terminal.Painter(color)
    last = paint.state(diff.state_of(drifts), diff.summary(drifts), "bold")
    return _table(diff.sections(drifts, every=every), width, paint, "", last)


def _table(
    sections: Sequence[Section], width: int, paint: terminal.Painter, first: str, last: str
) -> str:
    drawn = map("\n".join, terminal.draw(sections, max(width, 60), paint))
    return "\n\n".join(filter(None, (first, *drawn, _hint(sections), last))) + "\n"


def _hint(sections: Sequence[Section]) -> str:
    return _HINT if any(section.more for section in sections) else ""


def render_markdown(comparison: Comparison, *, every: bool = False) -> str:
    """The comparison as GitHub-flavored Markdown."""
    first = (
        f"{plain(comparison.before.source)} ({plain(end(comparison.before))}) &rarr; ",
        f"{plain(comparison.after.source)} ({plain(end(comparison.after))})",
        "",
        f"**{plain(summary(comparison))}**",
    )
    made = sections(comparison, every=every)
    return "\n".join(_markdown("what changed", first, made)) + "\n"


def render_drift_markdown(drifts: Drifts, *, every: bool = False) -> str:
    """The drift as GitHub-flavored Markdown."""
    made = diff.sections(drifts, every=every)
    first = (f"{plain(diff.summary(drifts))}.",)
    return "\n".join(_markdown("drift between targets", first, made)) + "\n"


def _markdown(title: str, first: Sequence[str], sections: Sequence[Section]) -> Iterator[str]:
    yield from (f"## buildmatrix: {title}", "", *first, "")
    yield from markdown.draw(sections)
    yield from filter(None, (_hint(sections),))
