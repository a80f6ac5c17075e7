"""Effect of a change (`audit --diff`): words, and parts of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from buildmatrix.base.text import count, listing, printable, size
from buildmatrix.judge.model import AuditTotals, Finding, TargetResult
from buildmatrix.judge.registry import drop_repeats
from buildmatrix.reports.diff.model import ComparedSide, Comparison
from buildmatrix.reports.diff.table import SIGN_STYLES
from buildmatrix.reports.diff.words import Block, blocks, signed_size
from buildmatrix.reports.run.groups import FindingGroup, groups
from buildmatrix.reports.run.model import Difference, TargetDifference
from buildmatrix.reports.terminal import STATES, Painter, wrapped

# In words, for a terminal and for Markdown


#: A side of which nothing is shown.
_LOCK = ComparedSide("", "lock", "", (), None, None, None, 0)


@dataclass(frozen=True, slots=True)
class Alike:
    """Targets for which a change brings the same."""

    targets: tuple[str, ...]
    block: Block


def group_alike(difference: Difference) -> tuple[Alike, ...]:
    """Return the additions, removals and changes; targets with the same ones together."""
    groups: dict[Block, list[str]] = {}
    for target in difference.targets:
        for block in blocks(_comparison(target), every=False):
            groups.setdefault(block, []).append(target.id)
    return tuple(Alike(tuple(names), block) for block, names in groups.items())


def _comparison(target: TargetDifference) -> Comparison:
    """Without what the line of a target says already, and what only that target is called."""
    verdicts = tuple(replace(verdict, backend="") for verdict in target.verdicts or ())
    return Comparison(_LOCK, _LOCK, distributions=target.distributions, verdicts=verdicts)


def row(target: TargetDifference) -> tuple[str, ...]:
    """New and gone findings, distributions in, out and changed, bytes to download and installed."""
    kinds = [change.change for change in target.distributions.changes]
    return (
        str(len(_new(target))),
        str(len(_findings_gone(target))),
        f"+{kinds.count('added')} -{kinds.count('removed')} ~{kinds.count('changed')}",
        _bytes(target, "download"),
        _bytes(target, "installed"),
    )


#: Columns of `row`.
COLUMNS = ("new", "gone", "distributions", "download", "installed")


def _bytes(target: TargetDifference, total: str) -> str:
    if target.after is None:
        return ""
    before: int = getattr(target.before or AuditTotals(), total)
    after: int = getattr(target.after, total)
    return signed_size(after - before) if after != before else "the same"


def change_summary(difference: Difference) -> str:
    """One sentence about the whole."""
    new = {_about(f) for target in difference.targets for f in _new(target) if f.waived is None}
    lost = {_about(f) for target in difference.targets for f in _findings_gone(target)}
    if not difference.targets:
        return "nothing to compare"
    changes = {
        (change.change, change.name, change.before, change.after)
        for target in difference.targets
        for change in target.distributions.changes
    }
    parts = [
        f"{count(len(new), 'new finding')}, {len(lost)} gone",
        count(len(changes), "distribution") + " in, out or changed" if changes else "",
        _largest(difference.targets),
    ]
    return "; ".join(part for part in parts if part)


def _about(finding: Finding) -> tuple[str, str | None, str | None, str | None]:
    """Return the key that makes a finding the same on several targets."""
    return finding.rule, finding.distribution, finding.path, finding.vendor


def _new(target: TargetDifference) -> tuple[Finding, ...]:
    """Findings that came; one problem is one finding."""
    return drop_repeats(target.findings.new) if target.findings is not None else ()


def _findings_gone(target: TargetDifference) -> tuple[Finding, ...]:
    return drop_repeats(target.findings.gone) if target.findings is not None else ()


def accepts(difference: Difference) -> tuple[str, tuple[str, ...]]:
    """Return what a change accepts: a sentence that comes first, and each finding; empty for
    nothing.
    """
    findings = drop_repeats(difference.accepts)
    if not findings:
        return "", ()
    about: dict[str, list[str]] = {}
    for finding in findings:
        text = f"{finding.severity} {finding.rule} {finding.name}: {finding.message}"
        about.setdefault(text, []).append(finding.target)
    lines = tuple(f"{text} ({listing(targets, 8)})" for text, targets in about.items())
    return f"this change accepts {count(len(lines), 'finding')}", lines


def gone(difference: Difference) -> tuple[FindingGroup, ...]:
    """Findings that are gone."""
    findings = [finding for target in difference.targets for finding in _findings_gone(target)]
    return groups(findings, [target.id for target in difference.targets])


def _largest(targets: Sequence[TargetDifference]) -> str:
    """Return the growth of the download of the target that grows most."""
    differences = {
        target.id: target.after.download - (target.before or AuditTotals()).download
        for target in targets
        if target.after is not None
    }
    if not differences:
        return ""
    target, most = max(differences.items(), key=lambda item: abs(item[1]))
    if not most:
        return "as much to download as before"
    word = "more" if most > 0 else "less"
    where = f" on {target}" if len(differences) > 1 else ""
    return f"{size(abs(most))} {word} to download{where}"


# Parts of the table


def accepted(difference: Difference, width: int, paint: Painter) -> list[str]:
    """Return what the change accepts by itself, which comes first."""
    sentence, lines = accepts(difference)
    if not sentence:
        return []
    head = f"{sentence}, by its waivers or its policy"
    return [paint(head, "bold"), *(part for text in lines for part in wrapped(text, width, "  "))]


def targets(difference: Difference, results: Sequence[TargetResult], paint: Painter) -> list[str]:
    """One line per target."""
    states = {result.id: STATES[result.gates.get("lock", "not-run")][0] for result in results}
    rows = [
        (printable(target.id), states.get(target.id, ""), *row(target))
        for target in difference.targets
    ]
    head = ("target", "audit", *COLUMNS)
    widths = [max(len(line[n]) for line in (head, *rows)) for n in range(len(head))]

    def line(cells: tuple[str, ...]) -> str:
        first = cells[0].ljust(widths[0])
        return "  ".join([first, *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))])

    return [paint(line(head).rstrip(), "bold"), *(line(cells).rstrip() for cells in rows)]


def changes(difference: Difference, width: int, paint: Painter) -> Iterator[list[str]]:
    """Distributions and verdicts that differ, then findings that are gone, then notes."""
    for group in group_alike(difference):
        names = listing(group.targets, 8)
        lines = [paint(printable(f"{group.block.title}: {names}"), "bold")]
        for item in group.block.rows:
            text = "  ".join(part for part in (item.subject, item.change) if part)
            more = f"  ({item.more})" if item.more else ""
            lines.append(f"  {paint(item.sign, SIGN_STYLES[item.sign])} {printable(text + more)}")
        if group.block.left_out:
            lines.append(f"    and {group.block.left_out} more; --format json has them all")
        yield lines
    lost = gone(difference)
    if lost:
        yield [
            paint("gone", "bold"),
            *(line for group in lost for line in wrapped(_gone_text(group), width, "  ", "    ")),
        ]
    if difference.notes:
        yield [
            paint("to know", "bold"),
            *(line for note in difference.notes for line in wrapped(note, width, "  ", "    ")),
        ]
    yield [paint(printable(f"since {difference.ref}: {change_summary(difference)}"), "bold")]


def _gone_text(group: FindingGroup) -> str:
    others = f", and with it {listing(group.others)}" if group.others else ""
    return "; ".join(
        f"{group.first.rule} {shared.text}{others} ({listing(shared.targets, 8)})"
        for shared in group.messages
    )
