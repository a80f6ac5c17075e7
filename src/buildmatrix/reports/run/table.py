"""The report for a terminal or a CI log: all targets with their gates, then the findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from buildmatrix.base.text import bounded, printable, size
from buildmatrix.judge.model import (
    AuditTotals,
    GateState,
    NodeFit,
    Severity,
    TargetResult,
    Trial,
    Verdict,
)
from buildmatrix.reports.run import revision
from buildmatrix.reports.run.groups import (
    FindingGroup,
    SharedText,
    groups,
    name_targets,
    savings_text,
    verdicts,
    whereabouts,
)
from buildmatrix.reports.run.model import (
    FixesTried,
    Report,
    is_undecided,
    left_out,
    state_of,
    steps,
    targets_in,
)
from buildmatrix.reports.run.node_map import STYLES, columns, notes, rule_codes
from buildmatrix.reports.run.summary import (
    ladders,
    select_unaccepted,
    summary,
    uncertain_words,
    wasted_texts,
    without_device,
)
from buildmatrix.reports.terminal import STATES, Painter, Style, wrapped

# Audits: totals and undecided verdicts


_WIDTHS = (9, 9, 10, 9)


def audit_totals(results: Sequence[TargetResult], paint: Painter) -> list[str]:
    """One line per target: its verdict, what it downloads and installs, and what is wasted."""
    width = max(len("target"), *(len(item.id) for item in results))
    names = ("download", "wasted", "installed", "wasted")
    states = _step_width("audit", [item.gates.get("lock", "not-run") for item in results])
    head = [text.rjust(columns) for text, columns in zip(names, _WIDTHS, strict=True)]
    lines = [paint("  ".join(["target".ljust(width), "audit".ljust(states), *head]), "bold")]
    for result in results:
        text, style = STATES[result.gates.get("lock", "not-run")]
        cells = [printable(result.id).ljust(width), paint(text.ljust(states), style)]
        if result.audit is not None and result.error is None:
            cells += _cells(result.audit)
        lines.append("  ".join(cells).rstrip())
    return lines


def _step_width(step: str, states: Iterable[GateState]) -> int:
    return max(len(word) for word in (step, *(STATES[state][0] for state in states)))


def _cells(totals: AuditTotals) -> list[str]:
    texts = (
        size(totals.download),
        bounded(totals.foreign_download, at_least=totals.foreign_at_least),
        size(totals.installed),
        bounded(totals.foreign_installed, at_least=totals.foreign_at_least),
    )
    return [text.rjust(width) for text, width in zip(texts, _WIDTHS, strict=True)]


def not_certain(report: Report) -> str:
    """Return the remark on verdicts that may still change; empty if there are none."""
    return " ".join(f"{text}." for text in uncertain_words(report, str))


# Fixes (`audit --fix`)


_LINES: dict[str, Style] = {"+": "green", "-": "red", "@": "blue"}


def fixes(report: Report, width: int, paint: Painter) -> Iterator[list[str]]:
    """The patch, what it saves, and what was not tried."""
    tried = report.fixes
    if tried is None:
        return
    if tried.patch:
        title = wrapped(_title(tried), width, further="  ")
        yield [*(paint(line, "bold") for line in title), *_savings(tried, paint)]
        yield [_paint_line(line, paint) for line in tried.patch.splitlines()]
    else:
        trials = [f.fix.tried for f in report.findings if f.fix is not None and f.fix.tried]
        if not trials:
            text = "there is none to try"
        elif any(trial.works for trial in trials):
            text = "they work, but there is nothing to write here"
        elif any(trial.works is None for trial in trials):
            open_still = sum(trial.works is None for trial in trials)
            is_all = open_still == len(trials)
            text = (
                "none could be tried"
                if is_all
                else f"none of them works; {open_still} could not be tried"
            )
        else:
            text = "none works"
        yield [paint(f"fixes: {text}", "bold")]
    if tried.notes:
        yield [line for note in tried.notes for line in wrapped(f"- {note}", width, further="  ")]


def _title(tried: FixesTried) -> str:
    names = printable(", ".join(tried.files))
    if tried.written:
        return f"fixed: {names}"
    return f"fixes for {names}; nothing is written, `--fix` without --dry-run does that"


def _savings(tried: FixesTried, paint: Painter) -> Iterator[str]:
    for item in tried.saved:
        text = savings_text(Trial(True, "", item.download, item.installed))
        yield f"  {printable(item.target)}: {paint(text, 'green')}"


def _paint_line(line: str, paint: Painter) -> str:
    style = _LINES.get(line[:1])
    return paint(printable(line), style) if style is not None else printable(line)


# Grid of targets and node classes


_PAINTED: dict[str, Style] = {"good": "green", "fair": "yellow", "bad": "red"}
_HEAD = "runs on"


def grid(targets: Sequence[TargetResult], width: int, paint: Painter) -> list[str]:
    """Targets by node classes; one line for each pair where the grid is too wide.

    Nothing where no target has node classes. What is no finding is said below.
    """
    shown = [target for target in targets if target.nodes]
    if not shown:
        return []
    nodes = columns(shown)
    names = max(len(_HEAD), *(len(printable(target.id)) for target in shown))
    widths = [
        max(len(printable(node)), *(len(_cell(target, node)) for target in shown)) for node in nodes
    ]
    if names + sum(column + 2 for column in widths) <= width:
        lines = _matrix(shown, nodes, names, widths, paint)
    else:
        lines = _list(shown, paint)
    for text in notes(shown):
        lines += wrapped(text, width, "  ")
    return lines


def _matrix(
    targets: Sequence[TargetResult],
    nodes: Sequence[str],
    names: int,
    widths: Sequence[int],
    paint: Painter,
) -> list[str]:
    head = [printable(node).ljust(width) for node, width in zip(nodes, widths, strict=True)]
    lines = [paint("  ".join([_HEAD.ljust(names), *head]).rstrip(), "bold")]
    for target in targets:
        cells = [printable(target.id).ljust(names)]
        for node, width in zip(nodes, widths, strict=True):
            fit = _fit(target, node)
            text = _cell(target, node).ljust(width)
            cells.append(paint(text, _PAINTED[STYLES[fit.state]]) if fit is not None else text)
        lines.append("  ".join(cells).rstrip())
    return lines


def _list(targets: Sequence[TargetResult], paint: Painter) -> list[str]:
    lines = [paint(_HEAD, "bold")]
    for target in targets:
        lines.append(printable(target.id))
        for fit in target.nodes or ():
            text = paint(_cell(target, fit.node), _PAINTED[STYLES[fit.state]])
            lines.append(f"  {printable(fit.node)}: {text}")
    return lines


def _fit(target: TargetResult, node: str) -> NodeFit | None:
    return next((fit for fit in target.nodes or () if fit.node == node), None)


def _cell(target: TargetResult, node: str) -> str:
    fit = _fit(target, node)
    if fit is None:
        return "-"
    codes = rule_codes(fit)
    return f"{fit.state} ({codes})" if codes else fit.state


# The whole table


_INDENT = "  "
#: Margin of the lines that a failed command printed, in an error.
_QUOTED = "  | "
_SEVERITIES: dict[Severity, Style] = {"error": "red", "warning": "yellow", "note": "blue"}
#: Files that could not be read, and are listed one by one.
_SHOWN_UNREAD = 10


def render(report: Report, *, width: int, color: bool) -> str:
    """The report as text, wrapped at `width` columns; chains and names are never cut."""
    paint, width = Painter(color), max(width, 40)
    finding_groups = groups(report.findings, [target.id for target in report.targets])
    blocks = [
        revision.accepted(report.diff, width, paint) if report.diff is not None else [],
        *([_targets(report, paint)] if report.targets else []),
        grid(report.targets, width, paint),
        *_findings(report, finding_groups, width, paint),
        *_bad_distributions(report, width, paint),
        *_unread(report, width, paint),
        _without_device(report, width, paint),
        _ladders(report, width, paint),
        wrapped(not_certain(report), width),
        [line for text in left_out(report) for line in wrapped(text, width)],
        *fixes(report, width, paint),
        _summary(report, finding_groups, width, paint),
        *(revision.changes(report.diff, width, paint) if report.diff is not None else ()),
        _next_command(report, width, paint),
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) + "\n"


# Targets


def _targets(report: Report, paint: Painter) -> list[str]:
    targets = report.targets
    if report.diff is not None:
        return revision.targets(report.diff, targets, paint)
    if any(target.audit is not None for target in targets):
        return audit_totals(targets, paint)
    names = [printable(target.id) for target in targets]
    name_width = max(map(len, ("target", *names)))
    columns = steps(targets)
    widths = [_step_width(step, [state_of(item, step) for item in targets]) for step in columns]
    head = [step.ljust(width) for step, width in zip(columns, widths, strict=True)]
    head += ["time".rjust(7), "size".rjust(8)]
    lines = [paint("  ".join(["target".ljust(name_width), *head]), "bold")]
    for name, result in zip(names, targets, strict=True):
        cells = [name.ljust(name_width)]
        for step, width in zip(columns, widths, strict=True):
            text, style = STATES[state_of(result, step)]
            cells.append(paint(text.ljust(width), style))
        cells.append(("cached" if result.cached else _seconds(result.seconds)).rjust(7))
        cells.append((size(result.size) if result.size is not None else "").rjust(8))
        lines.append("  ".join(cells).rstrip())
    return lines


def _seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02} m"


# Findings


def _findings(
    report: Report, finding_groups: Sequence[FindingGroup], width: int, paint: Painter
) -> Iterator[list[str]]:
    """Yield the findings, those of the same targets together, the most common first."""
    ids = [result.id for result in report.targets]
    about: dict[tuple[str, ...], list[str]] = {}
    for brought in wasted_texts(report) if report.is_audit else ():
        about.setdefault(brought.targets, []).extend(wrapped(brought.text, width, _INDENT))
    for target in report.targets:
        if target.error is not None:
            about.setdefault((target.id,), []).extend(_error(target, width, paint))
    blocks: dict[tuple[str, ...], list[FindingGroup]] = {}
    for group in finding_groups:
        blocks.setdefault(group.targets, []).append(group)
    for targets, same in blocks.items():
        lines = about.setdefault(targets, [])
        for group, after in zip_longest(same, same[1:]):
            lines += _block(group, after, ids, width, paint, audited=report.is_audit)

    def place(targets: tuple[str, ...]) -> tuple[int, int]:
        return -len(targets), ids.index(targets[0]) if targets[0] in ids else len(ids)

    for targets in sorted(about, key=place):
        title = wrapped(name_targets(targets, ids), width) or ["this run"]
        yield [*(paint(line, "bold") for line in title), *about[targets]]


def _error(target: TargetResult, width: int, paint: Painter) -> list[str]:
    lines = [part for line in (target.error or "").split("\n") for part in _error_line(line, width)]
    if target.log is not None:
        lines.append(f"{_INDENT}log: {printable(target.log)}")
    return [paint(line, "red") for line in lines]


def _error_line(line: str, width: int) -> list[str]:
    """One line of an error, wrapped; what a command printed keeps its margin `  | `."""
    margin = _QUOTED if line.startswith(_QUOTED) else ""
    return wrapped(line.removeprefix(margin), width, _INDENT + margin) or [_INDENT + margin]


def _block(
    group: FindingGroup,
    after: FindingGroup | None,
    ids: Sequence[str],
    width: int,
    paint: Painter,
    *,
    audited: bool,
) -> list[str]:
    """One finding, or several alike. A cure that the next block has too is only written there."""
    first = group.first
    inner = _INDENT * 2
    word = "waived" if first.waived is not None else first.severity
    style: Style = "dim" if first.waived is not None else _SEVERITIES[first.severity]
    title = f"{_INDENT}{paint(word, style, 'bold')} {first.rule} {paint(first.name, 'bold')}"
    lines = [f"{title}  {printable(first.label)}".rstrip()]
    for shared in group.messages:
        lines += wrapped(_of(shared, group.messages, ids) + shared.text, width, inner)
        lines += wrapped(shared.more, width, inner)
    lines += wrapped(first.by_policy, width, inner)
    if first.severity == "note" and first.waived is None:
        return lines
    if first.chain:
        lines += [paint(line, "dim") for line in _chain(first.chain, width, inner)]
    if first.waived is not None:
        lines += wrapped(f"accepted: {first.waived}", width, inner)
    elif not (after and _is_same_cure(group, after)):
        cures = group.cures(audited=audited)
        for shared in cures:
            lines += wrapped(_of(shared, cures, ids) + shared.text, width, inner)
    return lines


def _of(shared: SharedText, texts: Sequence[SharedText], ids: Sequence[str]) -> str:
    """Return the targets that a text is about, if targets differ."""
    return f"{name_targets(shared.targets, ids)}: " if len(texts) > 1 else ""


def _is_same_cure(group: FindingGroup, after: FindingGroup) -> bool:
    if after.first.waived is not None or after.first.severity == "note":
        return False
    return group.cures(audited=True) == after.cures(audited=True)


def _chain(chain: Sequence[str], width: int, indent: str) -> list[str]:
    """`a -> b -> c`, broken only at the arrows."""
    lines = [indent + printable(chain[0])]
    for link in map(printable, chain[1:]):
        if len(lines[-1]) + len(" -> ") + len(link) <= width:
            lines[-1] += f" -> {link}"
        else:
            lines.append(f"{indent}  -> {link}")
    return lines


# Other sections


def _bad_distributions(report: Report, width: int, paint: Painter) -> Iterator[list[str]]:
    """Verdicts other than `ok`; single wheels have no targets, and these are their result.

    Where an audit has a finding about a distribution, that says the same.
    """
    with_findings = {
        (finding.distribution, finding.version, finding.backend, target)
        for finding in report.findings
        if finding.severity != "note"
        for target in ("", finding.target, *finding.also)
    }
    bad = [
        verdict
        for verdict in report.distributions
        if verdict.verdict != "ok"
        and not (
            report.is_audit
            and all(
                (verdict.name, verdict.version, verdict.backend, target) in with_findings
                for target in verdict.targets or ("",)
            )
        )
    ]
    if not bad:
        return
    yield [
        paint("distributions", "bold"),
        *(
            line
            for verdict, reason in verdicts(bad, whereabouts(report))
            for line in _verdict(verdict, reason, width, paint)
        ),
    ]


def _verdict(verdict: Verdict, reason: SharedText, width: int, paint: Painter) -> list[str]:
    style: Style = "red" if verdict.verdict == "broken" else "yellow"
    head = printable(f"{verdict.name} {verdict.version} on {', '.join(reason.targets)}: ")
    lines = wrapped(f"{head}{verdict.verdict}, {reason.text}", width, _INDENT)
    return [lines[0].replace(verdict.verdict, paint(verdict.verdict, style), 1), *lines[1:]]


def _unread(report: Report, width: int, paint: Painter) -> Iterator[list[str]]:
    if not report.unread:
        return
    lines = [
        line
        for item in report.unread[:_SHOWN_UNREAD]
        for line in wrapped(f"{item.path}: {item.why}", width, _INDENT, _INDENT * 2)
    ]
    more = len(report.unread) - _SHOWN_UNREAD
    yield [
        paint("not read, so nothing is known about these", "bold"),
        *lines,
        *([f"{_INDENT}and {more} more"] if more > 0 else []),
    ]


def _without_device(report: Report, width: int, paint: Painter) -> list[str]:
    """Return what a green smoke gate does not cover."""
    return [
        paint(line, "dim")
        for said in without_device(report)
        for line in wrapped(
            f"not run for lack of a device: {said.text} of {', '.join(said.targets)}", width
        )
    ]


def _ladders(report: Report, width: int, paint: Painter) -> list[str]:
    ids = [target.id for target in report.targets]
    return [
        paint(line, "dim")
        for said in ladders(report)
        for line in wrapped(f"preflight of {name_targets(said.targets, ids)}: {said.text}", width)
    ]


def _next_command(report: Report, width: int, paint: Painter) -> list[str]:
    """Return the one command that shows more of an audit."""
    if not report.is_audit:
        return []
    left = [finding for finding in select_unaccepted(report) if finding.severity != "note"]
    if report.fixes is None and any(finding.fix and finding.fix.changes for finding in left):
        text = "`buildmatrix audit --fix --dry-run` tries the fixes, and shows what it would write"
    elif left:
        text = f"`buildmatrix rules {left[0].rule}` explains {left[0].name}"
    else:
        text = "`buildmatrix audit --format html=audit.html` writes a page about every distribution"
    return [paint(line, "dim") for line in wrapped(f"more: {text}", width)]


def _summary(
    report: Report, finding_groups: Sequence[FindingGroup], width: int, paint: Painter
) -> list[str]:
    failed = any(finding.severity == "error" for finding in select_unaccepted(report))
    style: Style = "yellow" if is_undecided(report) else "green"
    if failed or targets_in(report.targets, "failed"):
        style = "red"
    lines = wrapped(summary(report, finding_groups), width, further=_INDENT)
    return [paint(line, style, "bold") for line in lines]
