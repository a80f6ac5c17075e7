"""Rows and sentences of a comparison, shared by the terminal and Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from buildmatrix.base.text import count, listing, size
from buildmatrix.judge.model import Finding
from buildmatrix.reports.diff.model import (
    ArchitectureChange,
    Change,
    ComparedSide,
    Comparison,
    DistributionChange,
    LayerChange,
    LayersChange,
    LibraryChange,
    VariableChange,
    VerdictChange,
)

#: Entries of one kind, findings, and what was not read, that are shown without `--all`.
MOST, MOST_FINDINGS, MOST_UNREAD = 30, 20, 10
#: How a change of a finding is named.
FINDING_WORDS: dict[Change, str] = {"added": "new", "removed": "gone", "changed": "changed"}
SIGNS: dict[Change, str] = {"added": "+", "removed": "-", "changed": "~"}
#: Characters of an instruction or a value.
_LONGEST = 120


def severity_text(finding: Finding) -> str:
    """Return the severity of a finding, or that it is accepted."""
    return "accepted" if finding.waived is not None else finding.severity


@dataclass(frozen=True, slots=True)
class ChangeRow:
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


@dataclass(frozen=True, slots=True)
class Block:
    """All differences of one kind."""

    title: str
    rows: tuple[ChangeRow, ...]
    #: How many were left out.
    left_out: int = 0


def blocks(comparison: Comparison, *, every: bool) -> Iterator[Block]:
    """The differences beside findings, by kind; kinds without a difference do not appear."""
    for title, rows in (
        ("targets", _targets(comparison)),
        ("verdicts", [_verdict(verdict) for verdict in comparison.verdicts or ()]),
        (
            _distributions_title(comparison),
            [_distribution(change) for change in comparison.distributions.changes],
        ),
        ("libraries of vendors", list(_libraries(comparison.libraries or ()))),
        (
            "architectures of device code",
            [_architecture(architecture) for architecture in comparison.architectures or ()],
        ),
        ("bytes", list(_bytes(comparison))),
        (
            _layers_title(comparison.layers),
            [_layer(change) for change in comparison.layers.changes] if comparison.layers else [],
        ),
        ("base image", list(_base(comparison))),
        (
            "environment",
            [_variable(variable_change) for variable_change in comparison.environment or ()],
        ),
    ):
        if rows:
            yield _block(title, rows, every)


def _block(title: str, rows: Sequence[ChangeRow], every: bool) -> Block:
    if every or len(rows) <= MOST:
        return Block(title, tuple(rows))
    order = sorted(
        range(len(rows)), key=lambda n: (not rows[n].is_loud, rows[n].is_quiet, -rows[n].weight, n)
    )
    return Block(title, tuple(rows[n] for n in sorted(order[:MOST])), len(rows) - MOST)


def end(item: ComparedSide) -> str:
    """Describe one side: backends, size, distributions."""
    parts = [
        *([item.subject] if item.subject else []),
        *([f"for {listing(item.backends)}"] if item.backends else []),
        *([size(item.size)] if item.size is not None else []),
        count(item.distributions, "distribution"),
    ]
    return ", ".join(parts)


def summary(comparison: Comparison) -> str:
    """One sentence about the whole."""
    parts = []
    if comparison.findings is not None:
        new, gone = len(comparison.findings.new), len(comparison.findings.gone)
        parts.append(
            f"{count(new, 'finding')} new, {gone} gone, {comparison.findings.same} as before"
        )
    kinds: tuple[tuple[Change, str], ...] = (
        ("added", "added"), ("removed", "removed"), ("changed", "changed"),
    )  # fmt: skip
    numbers = [
        f"{sum(change.change == kind for change in comparison.distributions.changes)} {word}"
        for kind, word in kinds
    ]
    parts.append(f"distributions: {', '.join(numbers)}, {comparison.distributions.same} the same")
    if comparison.before.size is not None and comparison.after.size is not None:
        more = comparison.after.size - comparison.before.size
        parts.append(
            f"{signed_size(more)} in all" if more else f"{size(comparison.after.size)} as before"
        )
    return "; ".join(parts)


def signed_size(number: int) -> str:
    """Bytes with a sign: `+1.2 MB`."""
    return f"{'-' if number < 0 else '+'}{size(abs(number))}"


# Rows of each kind


def _targets(comparison: Comparison) -> list[ChangeRow]:
    return [
        *(ChangeRow("+", id) for id in comparison.targets.added),
        *(ChangeRow("-", id) for id in comparison.targets.removed),
    ]


def _verdict(change: VerdictChange) -> ChangeRow:
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


def _distributions_title(comparison: Comparison) -> str:
    differing = len(comparison.distributions.changes)
    total = differing + comparison.distributions.same
    return f"distributions ({differing} of {total} differ)"


def _distribution(change: DistributionChange) -> ChangeRow:
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


def _libraries(changes: Iterable[LibraryChange]) -> Iterator[ChangeRow]:
    """Libraries of one distribution that changed alike are one line."""
    groups: dict[tuple[object, ...], list[LibraryChange]] = {}
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


def _shows(change: LibraryChange) -> bool:
    """Return True if the versions themselves show the major change."""
    before, after = (
        "/".join(sorted({version.partition(".")[0] for version in side if version}))
        for side in (change.before, change.after)
    )
    return change.major == f"{before} -> {after}"


def _architecture(change: ArchitectureChange) -> ChangeRow:
    name = {None: "everything", "": "files of no distribution"}.get(
        change.distribution, change.distribution or ""
    )
    parts = [
        *([f"gained {' '.join(change.gained)}"] if change.gained else []),
        *([f"lost {' '.join(change.lost)}"] if change.lost else []),
    ]
    return ChangeRow(
        "~",
        f"{name} ({change.vendor})",
        ", ".join(parts),
        is_loud=change.distribution is None,
    )


def _bytes(comparison: Comparison) -> Iterator[ChangeRow]:
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


def _layers_title(layers: LayersChange | None) -> str:
    if layers is None:
        return "layers"
    hidden = ""
    if layers.hidden_before != layers.hidden_after:
        change = _arrow(size(layers.hidden_before), size(layers.hidden_after))
        hidden = f"; bytes that no container sees: {change}"
    same = f"the lowest {layers.same} are the same" if layers.same else "none is the same"
    return f"layers ({layers.before} -> {layers.after}, {same}{hidden})"


def _layer(change: LayerChange) -> ChangeRow:
    sizes = [
        size(layer_size)
        for layer_size in (change.size_before, change.size_after)
        if layer_size is not None
    ]
    return ChangeRow(
        SIGNS[change.change],
        f"layer {change.index + 1}",
        " -> ".join(dict.fromkeys(sizes)),
        _cut(change.instruction) or "made by an instruction that the image does not name",
        abs((change.size_after or 0) - (change.size_before or 0)),
    )


def _base(comparison: Comparison) -> Iterator[ChangeRow]:
    before, after = comparison.before.base, comparison.after.base
    if before is not None and after is not None and before != after:
        yield ChangeRow("~", "base", f"{before} -> {after}", is_loud=True)


def _variable(change: VariableChange) -> ChangeRow:
    before, after = (
        _cut(value) if value is not None else "" for value in (change.before, change.after)
    )
    text = f"is another value {after}" if before == after else _arrow(before, after)
    return ChangeRow(SIGNS[change.change], change.name, text)


def _arrow(before: str, after: str) -> str:
    """`a -> b`; the one there is where there is only one."""
    return f"{before} -> {after}" if before and after else before or after


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."
