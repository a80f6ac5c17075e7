"""First steps: the fixes that resolve most findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from buildmatrix.phrases import count
from buildmatrix.reports.run.groups import cure_key, cure_text
from buildmatrix.rules.model import Finding


@dataclass(frozen=True, slots=True)
class Cure:
    """One fix, and how many findings it is for."""

    key: str
    text: str
    findings: int
    targets: tuple[str, ...]
    #: Lines of a specification to write: one under each backend; 0 where it is no such line.
    lines: int
    #: Whether it was tried and works.
    works: bool


def cures(
    findings: Iterable[Finding], targets: Sequence[str], *, audited: bool = True
) -> tuple[Cure, ...]:
    """Fixes of open findings, what cures most first; not the advice to accept something.

    `targets` are all targets of the report, in its order.
    """
    order = {target: place for place, target in enumerate(targets)}
    by_key: dict[str, list[Finding]] = {}
    for finding in sorted(findings, key=lambda item: order.get(item.target, len(order))):
        if finding.waived is None and _is_cure(finding):
            by_key.setdefault(cure_key(finding), []).append(finding)
    merged = (_cure(key, alike, audited) for key, alike in by_key.items())
    return tuple(sorted(merged, key=lambda cure: -cure.findings))


def headline(offered: Sequence[Cure], findings: int) -> str:
    """`2 lines cure 27 of 29 findings`: of all open ones; `should` where one was not tried."""
    cured = sum(cure.findings for cure in offered)
    of_lines = all(cure.lines for cure in offered)
    number = sum(cure.lines for cure in offered) if of_lines else len(offered)
    steps = count(number, "line" if of_lines else "step")
    tried = all(cure.works for cure in offered)
    verb = ("cures" if number == 1 else "cure") if tried else "should cure"
    return f"{steps} {verb} {cured} of {count(findings, 'finding')}"


def _is_cure(finding: Finding) -> bool:
    fix = finding.offered_fix
    return fix is not None and fix.kind != "waive"


def _cure(key: str, findings: Sequence[Finding], audited: bool) -> Cure:
    fixes = [finding.fix for finding in findings if finding.fix is not None]
    is_line = all(
        fix.patch is not None and fix.kind in ("replace", "remove", "index") for fix in fixes
    )
    return Cure(
        key,
        cure_text(findings, audited=audited),
        len(findings),
        tuple(
            dict.fromkeys(
                target for finding in findings for target in (finding.target, *finding.also)
            )
        ),
        len({finding.backend for finding in findings}) if is_line else 0,
        all(fix.tried is not None and fix.tried.works is True for fix in fixes),
    )
