"""The report as Markdown, for the summary of a CI job or a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator

from buildmatrix.reports.fix_words import fix_text, saved
from buildmatrix.reports.model import FixesTried, Report, left_out, state_of, steps
from buildmatrix.reports.vain import brought, uncertain
from buildmatrix.rules.model import Finding, GateState, Trial
from buildmatrix.rules.text import bounded, count, listing, size
from buildmatrix.text import printable

_STATES: dict[GateState, str] = {
    "passed": "ok",
    "failed": "**failed**",
    "undecided": "**undecided**",
    "not-run": "not run",
}
_MARKUP = str.maketrans({char: f"\\{char}" for char in "\\`*_[]<>|#&~$"})
#: What GitHub and GitLab make links of, up to where they stop to do so: `@name`, `#12`, `https://`.
_CALLS = re.compile(r"((?<!\w)@(?=\w)|#(?=\d)|(?<=\w):(?=//)|(?<!\w)www(?=\.))")


def render(report: Report) -> str:
    """The report as GitHub-flavoured Markdown."""
    return "\n".join([f"## buildmatrix: {plain(report.subject)}", "", *_body(report)]) + "\n"


def _body(report: Report) -> Iterator[str]:
    audited = [one for one in report.targets if one.audit is not None]
    if report.difference is not None:
        from buildmatrix.reports import revision_markdown

        yield from revision_markdown.body(report)
        return
    if audited:
        yield from _audited(report)
    elif report.targets:
        columns = steps(report.targets)
        yield f"| target | {' | '.join(columns)} | size |"
        yield "|---" * (len(columns) + 2) + "|"
        for one in report.targets:
            gates = " | ".join(_STATES[state_of(one, step)] for step in columns)
            there = size(one.size) if one.size is not None else ""
            yield f"| {plain(one.id)} | {gates} | {there} |"
        yield ""
    for target in report.targets:
        if target.error is not None:
            first, *rest = target.error.split("\n")
            yield f"- {plain(target.id)}: {plain(first)}"
            yield from (f"  <br>{plain(line.strip())}" for line in rest if line.strip())
    for target in audited:
        for line in brought(report, target.id):
            asker = f" {plain(line.asker)}" if line.asker != line.line else ""
            yield (
                f"- {plain(target.id)}: **{plain(line.line)}**{asker} brings "
                f"{'at least ' if line.at_least else ''}{size(line.download)} to download and "
                f"{size(line.installed)} installed in vain, "
                f"in {count(line.distributions, 'distribution')}"
            )
    if not report.findings:
        yield "No findings."
    for finding in report.findings:
        yield from finding_lines(finding, audited=bool(audited))
    if report.fixes is not None:
        yield from _fixes(report.fixes)
    for item in report.unread:
        yield f"- not read: {plain(item.path)}: {plain(item.why)}"
    yield from (f"- {plain(text)}" for text in left_out(report))
    left = uncertain(report)
    if left:
        names = listing((plain(f"{one.name} {one.version}") for one in left), 12)
        yield f"- judged by a part of their files: {names}; `audit --deep` reads the rest"


def _audited(report: Report) -> Iterator[str]:
    yield "| target | audit | download | in vain | installed | in vain |"
    yield "|---|---|---:|---:|---:|---:|"
    for one in report.targets:
        totals = one.audit
        cells = (
            (
                size(totals.download),
                bounded(totals.foreign_download, at_least=totals.foreign_at_least),
                size(totals.installed),
                bounded(totals.foreign_installed, at_least=totals.foreign_at_least),
            )
            if totals is not None and one.error is None
            else ()
        )
        state = _STATES[one.gates.get("lock", "not-run")]
        sizes = " | ".join(cells) or " | | |"
        yield f"| {plain(one.id)} | {state} | {sizes} |"
    yield ""


def _fixes(fixes: FixesTried) -> Iterator[str]:
    if fixes.patch:
        verb = "fixed" if fixes.written else "`audit --fix` would change"
        yield ""
        yield f"**{verb} {plain(', '.join(fixes.files))}**"
        for one in fixes.saved:
            trial = Trial(True, "", one.download, one.installed)
            yield f"- {plain(one.target)}: {plain(saved(trial))}"
        # Longer than any fence within it.
        fence = "`" * (3 + fixes.patch.count("`"))
        yield from ("", f"{fence}diff", fixes.patch.rstrip("\n"), fence, "")
    yield from (f"- {plain(note)}" for note in fixes.notes)


def finding_lines(one: Finding, *, audited: bool) -> Iterator[str]:
    """One finding as an item of a list."""
    word = "waived" if one.waived is not None else one.severity
    where = f" in {plain(one.target)}" if one.target else ""
    yield f"- **{word} {plain(one.rule)}** {plain(one.name)}{where}: {plain(one.message)}"
    if one.chain:
        yield f"  <br>{' &rarr; '.join(plain(link) for link in one.chain)}"
    if one.waived is not None:
        yield f"  <br>accepted: {plain(one.waived)}"
    elif one.fix is not None:
        yield f"  <br>{plain(fix_text(one.fix, audited=audited))}"


def plain(text: str) -> str:
    """Text that Markdown takes literally: names come from images that nobody vouches for.

    Nor does it call anybody or become a link, as `@types` in a path would in a comment: whoever
    looks for those looks at the text between tags and comments.
    """
    return _CALLS.sub(r"\1<!-- -->", printable(text).translate(_MARKUP))
