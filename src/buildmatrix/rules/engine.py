"""Runs the rules over one target.

A finding's fingerprint is made of rule, backend, distribution without version, vendor, and for
rules that judge single paths the path without hashes and versions: it stays the same when a target
is renamed or a distribution is upgraded, so waivers and baselines outlive both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import import_module
from typing import TypeVar

from buildmatrix.catalogue import match
from buildmatrix.catalogue.leftovers import split_leftovers
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.model import Evidence
from buildmatrix.inventory.model import Inventory
from buildmatrix.loader.resolution import Resolution
from buildmatrix.locks.model import Lock
from buildmatrix.rules import known_vulnerability, not_checked
from buildmatrix.rules.agreement import BELONGS, reconcile
from buildmatrix.rules.composing import compose
from buildmatrix.rules.composition import Composition
from buildmatrix.rules.fit import fits
from buildmatrix.rules.model import Finding, NodeFit, Verdict, in_order
from buildmatrix.rules.registry import RULES, Scope
from buildmatrix.rules.repeats import FILES
from buildmatrix.rules.subject import ImageSubject, Subject, built, locked
from buildmatrix.rules.wheels import Wheels
from buildmatrix.spec.model import Policy, Target
from buildmatrix.vulnerabilities.model import Advisories

SubjectT = TypeVar("SubjectT", bound=Subject)


def _checks(*scopes: Scope) -> tuple[Callable[..., Iterator[Finding]], ...]:
    return tuple(import_module(rule.module).check for rule in RULES if rule.scope in scopes)


#: Rules about distributions, locked or installed.
OF_DISTRIBUTIONS: tuple[Callable[[Subject], Iterator[Finding]], ...] = _checks("lock")
#: Rules about the content of an image.
OF_IMAGES: tuple[Callable[[ImageSubject], Iterator[Finding]], ...] = _checks("files", "image")
#: Rules about wheels and the lock that names them.
OF_WHEELS: tuple[Callable[[Wheels], Iterator[Finding]], ...] = _checks("wheels")
#: Rules about files that need no system below them: a wheel alone shows what they look for.
OF_FILES: tuple[Callable[[ImageSubject], Iterator[Finding]], ...] = _checks("files")


@dataclass(frozen=True, slots=True)
class Judgement:
    """Findings, verdicts and composition of one target."""

    findings: tuple[Finding, ...]
    #: Verdict of each distribution, sorted by name; see `rules.agreement`.
    verdicts: tuple[Verdict, ...]
    #: Result for each node class of the target, if the image was scanned.
    fits: tuple[NodeFit, ...] = ()
    #: Composition of an image.
    composition: Composition | None = None


def judge_wheels(wheels: Wheels) -> Judgement:
    """Judge the locked wheels, as far as they were read.

    A fact that two rules find is reported once: the files of a distribution that belongs to another
    backend as a whole are not listed, and neither are its links to libraries that it ships itself.
    """
    declared, verdicts = reconcile(wheels, _findings(OF_DISTRIBUTIONS, wheels))
    about_lock = list(_findings(OF_WHEELS, wheels))
    seen = list(_findings(OF_FILES, wheels))
    foreign = {
        finding.distribution
        for finding in declared
        if finding.rule in BELONGS and finding.severity == "error"
    }
    shipped = {
        (finding.distribution, finding.vendor) for finding in seen if finding.rule == "BM201"
    }
    lines = {
        item.distribution
        for finding in (*declared, *about_lock)
        if finding.rule in ("BM103", "BM109")
        for item in finding.evidence
    }

    def is_said(finding: Finding) -> bool:
        if finding.rule == "BM303":
            return f"{finding.distribution}=={finding.version}" in lines
        if finding.rule == "BM301" and (finding.distribution, finding.vendor) in shipped:
            return not any((item.path, item.detail) in wheels.missing for item in finding.evidence)
        return finding.rule in FILES and finding.distribution in foreign

    kept = (finding for finding in seen if not is_said(finding))
    return Judgement(in_order((*declared, *about_lock, *kept)), verdicts)


def check_lock(
    target: Target, lock: Lock, catalogue: Catalogue, policy: Policy
) -> tuple[Finding, ...]:
    """Return the findings about locked distributions."""
    subject = locked(target, lock, catalogue, policy)
    return in_order(_findings(OF_DISTRIBUTIONS, subject))


def judge_image(
    target: Target,
    inventory: Inventory,
    evidence: Sequence[Evidence],
    lock: Lock | None,
    catalogue: Catalogue,
    policy: Policy,
    resolution: Resolution | None = None,
) -> Judgement:
    """Judge the target's image. `lock` provides the chains up to the requirement lines.

    Files that were never installed are judged separately (`catalogue.leftovers`). `resolution` is
    that of the inventory, if the caller has it already.
    """
    parted = split_leftovers(inventory, catalogue)
    if parted.leftovers:
        inventory, resolution = parted.installed, None
        evidence = match.evidence(inventory, catalogue)
    left = parted.leftovers
    image = built(target, inventory, evidence, lock, catalogue, policy, resolution, left)
    declared, verdicts = reconcile(image, _findings(OF_DISTRIBUTIONS, image))
    findings = in_order((*declared, *_findings(OF_IMAGES, image)))
    return Judgement(findings, verdicts, fits(image, findings), compose(image, verdicts))


def _findings(
    rules: Iterable[Callable[[SubjectT], Iterator[Finding]]], subject: SubjectT
) -> Iterator[Finding]:
    return (finding for rule in rules for finding in rule(subject))


def check_advisories(subject: Subject, advisories: Advisories, today: date) -> tuple[Finding, ...]:
    """Return the findings about known vulnerabilities and unchecked distributions."""
    findings = known_vulnerability.check(subject, advisories, today)
    return in_order((*findings, *not_checked.check(subject, advisories)))
