"""The report for a terminal or a CI log: all targets with their gates, then what was found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, zip_longest

from buildmatrix.reports import revision_table, table_audit, table_fixes
from buildmatrix.reports.ansi import Painter, Style, wrapped
from buildmatrix.reports.fix_words import fix_text
from buildmatrix.reports.model import Report, left_out, state_of, steps, targets_in
from buildmatrix.reports.table_states import STATES
from buildmatrix.rules.baseline import is_from_baseline
from buildmatrix.rules.model import Finding, Severity, TargetResult, Verdict
from buildmatrix.rules.text import count, listing, size
from buildmatrix.text import printable

_INDENT = "  "
#: Margin of the lines that a failed command printed, in an error.
_QUOTED = "  | "
_SEVERITIES: dict[Severity, Style] = {"error": "red", "warning": "yellow", "note": "blue"}
_RANK: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}
#: Files that could not be read, and are listed one by one.
_SHOWN_UNREAD = 10


def render(report: Report, *, width: int, color: bool) -> str:
    """The report as text, wrapped at `width` columns; chains and names are never cut."""
    paint = Painter(color)
    blocks = [
        *([_targets(report, paint)] if report.targets else []),
        *_findings(report, max(width, 40), paint),
        *_bad_distributions(report, max(width, 40), paint),
        *_unread(report, paint),
        _smoke_not_run(report, max(width, 40), paint),
        wrapped(table_audit.not_certain(report) or "", max(width, 40)),
        [line for text in left_out(report) for line in wrapped(text, max(width, 40))],
        *table_fixes.fixes(report, max(width, 40), paint),
        [_summary(report, paint)],
        *(
            revision_table.changes(report.difference, max(width, 40), paint)
            if report.difference is not None
            else ()
        ),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


# Targets


def _targets(report: Report, paint: Painter) -> list[str]:
    targets = report.targets
    if report.difference is not None:
        return revision_table.targets(report.difference, targets, paint)
    if any(one.audit is not None for one in targets):
        return table_audit.targets(targets, paint)
    names = [printable(one.id) for one in targets]
    name_width = max(map(len, ("target", *names)))
    columns = steps(targets)
    head = [*(step.ljust(6) for step in columns), "time".rjust(7), "size".rjust(8)]
    lines = [paint("  ".join(["target".ljust(name_width), *head]), "bold")]
    for name, one in zip(names, targets, strict=True):
        cells = [name.ljust(name_width)]
        for step in columns:
            text, style = STATES[state_of(one, step)]
            cells.append(paint(text.ljust(6), style))
        cells.append(("cached" if one.cached else _seconds(one.seconds)).rjust(7))
        cells.append((size(one.size) if one.size is not None else "").rjust(8))
        lines.append("  ".join(cells).rstrip())
    return lines


def _seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02} m"


# Findings


def _findings(report: Report, width: int, paint: Painter) -> Iterator[list[str]]:
    errors = {one.id: one for one in report.targets if one.error is not None}
    by_target = {
        target: list(group) for target, group in groupby(report.findings, lambda one: one.target)
    }
    known = [one.id for one in report.targets]
    audited = any(one.audit is not None for one in report.targets)
    rest = [target for target in by_target if target not in known]
    for target in (*known, *rest):
        brought = table_audit.in_vain(report, target) if audited else ()
        lines = [part for text in brought for part in wrapped(text, width, _INDENT)]
        if target in errors:
            lines += _error(errors[target], width, paint)
        blocks = _alike(by_target.get(target, ()))
        for same, after in zip_longest(blocks, blocks[1:]):
            lines += _block(same, after, width, paint, audited=audited)
        if lines:
            yield [paint(printable(target) or "this run", "bold"), *lines]


def _error(target: TargetResult, width: int, paint: Painter) -> list[str]:
    lines = [part for line in (target.error or "").split("\n") for part in _error_line(line, width)]
    if target.log is not None:
        lines.append(f"{_INDENT}log: {printable(target.log)}")
    return [paint(line, "red") for line in lines]


def _error_line(line: str, width: int) -> list[str]:
    """One line of an error, wrapped; what a command printed keeps its margin `  | `."""
    margin = _QUOTED if line.startswith(_QUOTED) else ""
    return wrapped(line.removeprefix(margin), width, _INDENT + margin) or [_INDENT + margin]


def _alike(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings that say the same of several distributions and have one cure, worst first.

    One default torch brings fifteen foreign distributions: that is one thing to read.
    """
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for one in findings:
        key = (one.rule, one.severity, one.vendor, one.waived, _cause(one))
        groups.setdefault(key, []).append(one)
    return sorted(groups.values(), key=lambda same: _order(same[0]))


def _cause(one: Finding) -> object:
    """What findings that are read as one have in common."""
    if one.rule == "BM101" and one.fix is not None and one.fix.kind != "waive":
        return one.fix.text, one.chain[:1]
    if one.rule == "BM103" and one.fix is not None and one.fix.kind == "index":
        return one.fix.text, one.chain[:1]
    if one.rule in ("BM107", "BM902"):
        return one.message.partition(": ")[2]
    return id(one)


def _order(one: Finding) -> tuple[bool, int, str, str, str]:
    waived = one.waived is not None
    return waived, _RANK[one.severity], one.distribution or "", one.rule, one.path or ""


def _head(same: Sequence[Finding]) -> Finding:
    """The one that stands for the others: closest to the requirement line."""
    return min(same, key=lambda one: (len(one.chain), one.distribution or ""))


def _block(
    same: Sequence[Finding],
    after: Sequence[Finding] | None,
    width: int,
    paint: Painter,
    *,
    audited: bool,
) -> list[str]:
    """One finding, or several alike. A cure that the next block has too is only written there."""
    first = _head(same)
    inner = _INDENT * 2
    word = "waived" if first.waived is not None else first.severity
    style: Style = "dim" if first.waived is not None else _SEVERITIES[first.severity]
    title = f"{_INDENT}{paint(word, style, 'bold')} {first.rule} {paint(first.name, 'bold')}"
    lines = [f"{title}  {printable(_who(first))}".rstrip()]
    lines += wrapped(first.message, width, inner)
    if len(same) > 1:
        others = [_who(one) or one.path or "" for one in same if one is not first]
        total = sum(item.size for one in same for item in one.evidence)
        known = f" ({size(total)} together)" if total else ""
        lines += wrapped(f"with it{known}: {listing(others, 30)}", width, inner)
    if first.severity == "note" and first.waived is None:
        return lines
    if first.chain:
        lines += [paint(line, "dim") for line in _chain(first.chain, width, inner)]
    if first.waived is not None:
        lines += wrapped(f"accepted: {first.waived}", width, inner)
    elif first.fix is not None and not (after and _is_same_cure(first, _head(after))):
        lines += wrapped(fix_text(first.fix, audited=audited), width, inner)
    return lines


def _is_same_cure(one: Finding, other: Finding) -> bool:
    if other.fix is None or one.fix is None or (other.severity == "note" and not other.waived):
        return False
    return (one.distribution, one.fix.text) == (other.distribution, other.fix.text)


def _who(one: Finding) -> str:
    return " ".join(part for part in (one.distribution, one.version) if part)


def _chain(chain: Sequence[str], width: int, indent: str) -> list[str]:
    """`a -> b -> c`, broken only at the arrows."""
    lines = [indent + printable(chain[0])]
    for link in map(printable, chain[1:]):
        if len(lines[-1]) + len(" -> ") + len(link) <= width:
            lines[-1] += f" -> {link}"
        else:
            lines.append(f"{indent}  -> {link}")
    return lines


# The rest


def _bad_distributions(report: Report, width: int, paint: Painter) -> Iterator[list[str]]:
    """Verdicts other than `ok`; single wheels have no targets, and these are their result.

    Where an audit has a finding about a distribution, that says the same.
    """
    told = {
        (one.distribution, one.version, one.backend)
        for one in report.findings
        if one.severity != "note"
    }
    audited = any(one.audit is not None for one in report.targets)
    bad = [
        one
        for one in report.distributions
        if one.verdict != "ok" and not (audited and (one.name, one.version, one.backend) in told)
    ]
    if not bad:
        return
    yield [
        paint("distributions", "bold"),
        *(line for one in bad for line in _verdict(one, width, paint)),
    ]


def _verdict(one: Verdict, width: int, paint: Painter) -> list[str]:
    style: Style = "red" if one.verdict == "broken" else "yellow"
    head = printable(f"{one.name} {one.version} on {one.backend}: ")
    lines = wrapped(f"{head}{one.verdict}, {one.reason}", width, _INDENT)
    return [lines[0].replace(one.verdict, paint(one.verdict, style), 1), *lines[1:]]


def _unread(report: Report, paint: Painter) -> Iterator[list[str]]:
    if not report.unread:
        return
    lines = [
        f"{_INDENT}{printable(item.path)}: {printable(item.why)}"
        for item in report.unread[:_SHOWN_UNREAD]
    ]
    more = len(report.unread) - _SHOWN_UNREAD
    yield [
        paint("not read, so nothing is known about it", "bold"),
        *lines,
        *([f"{_INDENT}and {more} more"] if more > 0 else []),
    ]


def _smoke_not_run(report: Report, width: int, paint: Painter) -> list[str]:
    """What a green smoke gate does not vouch for."""
    targets: dict[tuple[str, ...], list[str]] = {}
    for one in report.targets:
        if one.smoke_not_run:
            targets.setdefault(one.smoke_not_run, []).append(one.id)
    return [
        paint(line, "dim")
        for names, ids in targets.items()
        for line in wrapped(
            f"not run for want of a device: smoke {', '.join(names)} of {', '.join(ids)}",
            width,
        )
    ]


def _summary(report: Report, paint: Painter) -> str:
    open_findings = [one for one in report.findings if one.waived is None]
    parts = [
        count(sum(one.severity == severity for one in open_findings), severity)
        for severity in _SEVERITIES
    ]
    known = sum(is_from_baseline(one) for one in report.findings)
    waived = len(report.findings) - len(open_findings) - known
    if waived:
        parts.append(f"{waived} waived")
    if known:
        parts.append(f"{known} in the baseline")
    if report.unread:
        parts.append(f"{len(report.unread)} not read")
    text = ", ".join(parts)
    if report.targets:
        bad = targets_in(report.targets, "failed")
        unknown = targets_in(report.targets, "undecided")
        text = (
            f"{count(len(report.targets), 'target')}: {bad} failed"
            + (f", {unknown} undecided" if unknown else "")
            + f"; {text}"
        )
    worst: Style = "red" if any(one.severity == "error" for one in open_findings) else "green"
    return paint(text, worst, "bold")
