"""Effect of a change (`audit --diff`) as sections."""

from __future__ import annotations

from collections.abc import Sequence

from buildmatrix.base.data import replace
from buildmatrix.base.text import count, listing, size
from buildmatrix.judge.model import AuditTotals, Finding, TargetResult
from buildmatrix.judge.registry import drop_repeats
from buildmatrix.reports.diff import ComparedSide, Comparison
from buildmatrix.reports.diff_sections import sections
from buildmatrix.reports.groups import FindingGroup, group_findings
from buildmatrix.reports.run import Difference, TargetDifference
from buildmatrix.reports.sections import Row, Section, filled, sentences, signed_size

# In words


#: A side of which nothing is shown.
_LOCK = ComparedSide("", "lock", "", (), None, None, None, 0)


def _comparison(target: TargetDifference) -> Comparison:
    """Without what the line of a target says already, and what only that target is called."""
    verdicts = tuple(replace(verdict, backend="") for verdict in target.verdicts or ())
    return Comparison(_LOCK, _LOCK, distributions=target.distributions, verdicts=verdicts)


def _row(target: TargetDifference) -> tuple[str, ...]:
    """New and gone findings, distributions in, out and changed, bytes to download and installed."""
    kinds = [change.change for change in target.distributions.changes]
    return (
        str(len(_new(target))),
        str(len(_findings_gone(target))),
        f"+{kinds.count('added')} -{kinds.count('removed')} ~{kinds.count('changed')}",
        _bytes(target, "download"),
        _bytes(target, "installed"),
    )


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


# Sections


def accepted(difference: Difference) -> Section:
    """Findings that the change accepts by itself, which come first."""
    about: dict[str, list[str]] = {}
    for finding in drop_repeats(difference.accepts):
        text = f"{finding.severity} {finding.rule} {finding.name}: {finding.message}"
        about.setdefault(text, []).append(finding.target)
    title = f"This change accepts {count(len(about), 'finding')}, by its waivers or its policy"
    texts = (f"{text} ({listing(targets, 8)})" for text, targets in about.items())
    return sentences("accepted", title, texts)


def targets(difference: Difference, results: Sequence[TargetResult]) -> Section:
    """One row per target."""
    states = {result.id: result.gates.get("lock", "not-run") for result in results}
    return Section(
        "change",
        "",
        ("target", "audit", "new", "gone", "distributions", "download", "installed"),
        tuple(
            Row((target.id, states.get(target.id, ""), *_row(target)))
            for target in difference.targets
        ),
        frozenset(range(2, 7)),
        frozenset({1}),
        subject=0,
    )


def changes(difference: Difference) -> Sequence[Section]:
    """Distributions and verdicts that differ, alike targets together; findings gone; notes."""
    alike: dict[Section, list[str]] = {}
    for target in difference.targets:
        for section in sections(_comparison(target), every=False):
            alike.setdefault(section, []).append(target.id)
    findings = [finding for target in difference.targets for finding in _findings_gone(target)]
    gone = group_findings(findings, [target.id for target in difference.targets])
    return [
        *(
            replace(section, title=f"{section.title}: {listing(names, 8)}")
            for section, names in alike.items()
        ),
        *filled(
            replace(
                sentences("gone", "Findings that are gone", map(_gone_text, gone)), is_folded=True
            ),
            sentences("to-know", "To know", difference.notes),
        ),
    ]


def _gone_text(group: FindingGroup) -> str:
    first = group.first
    others = f", and with it {listing(group.others)}" if group.others else ""
    return "; ".join(
        f"{first.rule} {first.name}: {shared.text}{others} ({listing(shared.targets, 8)})"
        for shared in group.messages
    )
