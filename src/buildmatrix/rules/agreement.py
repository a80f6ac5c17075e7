"""Reconciliation of findings about names with verdicts about bytes.

A name says what a distribution is sold as, its files say what it is. Where both are known, the
files count: a build for another backend that works and weighs little is no error, and no clean one
either. Where no file is known, the name is all there is, and counts. So no distribution has an
error about another vendor beside the verdict `ok` or `optional`, nor `bloat` without one. What is
made for another toolkit line of the target's own vendor is of no more use than what is another's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from buildmatrix.rules.model import UNFIT, Finding, Verdict, VerdictName
from buildmatrix.rules.subject import ImageSubject

#: Rules that say of a whole distribution that it is another backend's.
BELONGS = ("BM101", "BM102", "BM104")
#: The rule that says that it is for another toolkit line of this backend.
OTHER_LINE = "BM103"


def reconcile(
    image: ImageSubject, declared: Iterable[Finding]
) -> tuple[tuple[Finding, ...], tuple[Verdict, ...]]:
    """`declared`, findings of rules about names, no worse than the verdicts; and those."""
    vendor = image.own_vendor
    verdicts = dict(image.verdicts)
    findings = []
    for finding in declared:
        owner = f"{finding.distribution}=={finding.version}"
        verdict = verdicts.get(owner)
        if finding.rule == OTHER_LINE and verdict is not None:
            verdicts[owner] = _of_other_line(image, verdict, finding)
        foreign = (
            finding.rule in BELONGS and finding.vendor is not None and finding.vendor != vendor
        )
        if finding.rule == "BM104" and verdict is not None and finding.vendor == vendor:
            verdicts[owner] = _without_devices(verdict, finding)
        if verdict is None or not foreign or (verdict.verdict in UNFIT and not verdict.is_open):
            findings.append(finding)
            continue
        is_hypothesis = image.standings.get(owner) == "open"
        if finding.severity == "error" and (owner in image.tree.held or is_hypothesis):
            finding = replace(finding, severity="warning")
        if verdict.verdict in UNFIT:
            findings.append(finding)
            continue
        if finding.severity != "note":
            verdicts[owner] = _not_clean(verdict, finding)
        findings.append(finding)
    return tuple(findings), tuple(verdicts.values())


def _of_other_line(image: ImageSubject, verdict: Verdict, finding: Finding) -> Verdict:
    """Count all of it as wasted if its name proves the line, unless something loads it."""
    if verdict.verdict in UNFIT:
        return verdict
    verdict = _not_clean(verdict, finding)
    if verdict.verdict != "bloat":
        return verdict
    is_used = verdict.owner in image.tree.used
    size = (
        0
        if is_used
        else next(
            (
                item.size
                for item in image.inventory.distributions
                if (item.name, item.version) == (verdict.name, verdict.version)
            ),
            0,
        )
    )
    return replace(verdict, foreign_bytes=size, certain=True, may_be=None)


def _without_devices(verdict: Verdict, finding: Finding) -> Verdict:
    """Downgrade a working distribution without a build for this backend to `optional`."""
    if verdict.verdict != "ok":
        return verdict
    reason = finding.message.partition(": ")[2] or finding.message
    return replace(verdict, verdict="optional", reason=reason)


def _not_clean(verdict: Verdict, finding: Finding) -> Verdict:
    name: VerdictName = "bloat" if finding.severity == "error" else "optional"
    if verdict.verdict == name:
        return verdict
    reason = (
        finding.message.partition(", not usable on")[0]
        .partition(": libraries of two")[0]
        .removeprefix(f"{verdict.name} ")
    )
    vendors = {*verdict.vendors, *([finding.vendor] if finding.vendor is not None else [])}
    return replace(
        verdict, verdict=name, reason=f"by its name: {reason}", vendors=tuple(sorted(vendors))
    )
