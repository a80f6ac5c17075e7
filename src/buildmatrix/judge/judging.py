"""Judge locks and images by the rules, catalogue and waivers of one run.

A finding's fingerprint is made of rule, backend, distribution without version, vendor, and for
rules that judge single paths the path without hashes and versions: it stays the same when a target
is renamed or a distribution is upgraded, so waivers and baselines outlive both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import date
from functools import cached_property, partial
from typing import TypeVar

import msgspec
import packaging
from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.catalogue import match
from buildmatrix.catalogue.leftovers import split_leftovers
from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.catalogue.model import Evidence
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.loader import Resolution
from buildmatrix.judge import (
    architectures,
    contradictions,
    distributions,
    duplicates,
    foreign_files,
    framework_against_libraries,
    licenses,
    loading,
    locks,
    node_classes,
    sizes,
    unfit_artifacts,
    unread,
)
from buildmatrix.judge.acceptance import (
    FailOn,
    apply_baseline,
    apply_policy,
    apply_waivers,
    check_expired_or_unused_waiver,
    check_severities,
    check_waived_rules,
    fails,
    leaves_open,
)
from buildmatrix.judge.certainty import name_unparsed_python
from buildmatrix.judge.composing import compose
from buildmatrix.judge.composition import Composition
from buildmatrix.judge.fit import REASONS, fits, mark_accepted
from buildmatrix.judge.locks import Wheels
from buildmatrix.judge.model import (
    UNFIT,
    Advisories,
    Finding,
    GateState,
    NodeFit,
    Verdict,
    VerdictName,
    sort_findings,
)
from buildmatrix.judge.node_classes import findings_of
from buildmatrix.judge.registry import BY_CODE, FILE_RULES, RULES, Scope
from buildmatrix.judge.sizes import check_unpinned_base
from buildmatrix.judge.subject import ImageSubject, Subject, built, locked
from buildmatrix.judge.verdicts import pass_through_requirements
from buildmatrix.locks.model import Lock
from buildmatrix.matrix.model import Policy, Spec, Target

SubjectT = TypeVar("SubjectT", bound=Subject)


#: Modules of the rules that it runs.
_MODULES = (
    architectures,
    contradictions,
    distributions,
    duplicates,
    foreign_files,
    framework_against_libraries,
    licenses,
    loading,
    locks,
    node_classes,
    sizes,
    unfit_artifacts,
    unread,
)


_FUNCTIONS = {name: value for module in _MODULES for name, value in vars(module).items()}
# A rule about node classes alone has reasons, and no function of its own.
for code, reasons in REASONS.items():
    _FUNCTIONS.setdefault(BY_CODE[code].function, partial(findings_of, code, reasons=reasons))


def _checks(*scopes: Scope) -> tuple[Callable[..., Iterator[Finding]], ...]:
    return tuple(_FUNCTIONS[rule.function] for rule in RULES if rule.scope in scopes)


#: Rules about distributions, locked or installed.
OF_DISTRIBUTIONS: tuple[Callable[[Subject], Iterator[Finding]], ...] = _checks("lock")
#: Rules about the content of an image.
OF_IMAGES: tuple[Callable[[ImageSubject], Iterator[Finding]], ...] = _checks("files", "image")
#: Rules about wheels and the lock that names them.
OF_WHEELS: tuple[Callable[[Wheels], Iterator[Finding]], ...] = _checks("wheels")
#: Rules about files that need no system below them: a wheel alone shows what they look for.
OF_FILES: tuple[Callable[[ImageSubject], Iterator[Finding]], ...] = _checks("files")


class Judgement(Struct, frozen=True):
    """Findings, verdicts and composition of one target."""

    findings: tuple[Finding, ...]
    #: Verdict of each distribution, sorted by name; see `judge.judging`.
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
            linked = ((item.path, item.detail) for item in finding.evidence)
            return wheels.tree.missing.isdisjoint(linked)
        return finding.rule in FILE_RULES and finding.distribution in foreign

    kept = (finding for finding in seen if not is_said(finding))
    return Judgement(sort_findings((*declared, *about_lock, *kept)), verdicts)


def check_lock(
    target: Target, lock: Lock, catalogue: Catalogue, policy: Policy
) -> tuple[Finding, ...]:
    """Return the findings about locked distributions."""
    subject = locked(target, lock, catalogue, policy)
    return sort_findings(_findings(OF_DISTRIBUTIONS, subject))


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
    findings = sort_findings((*declared, *_findings(OF_IMAGES, image)))
    return Judgement(findings, verdicts, fits(image, findings), compose(image, verdicts))


def _findings(
    rules: Iterable[Callable[[SubjectT], Iterator[Finding]]], subject: SubjectT
) -> Iterator[Finding]:
    return (finding for rule in rules for finding in rule(subject))


def check_advisories(subject: Subject, advisories: Advisories, today: date) -> tuple[Finding, ...]:
    """Return the findings about known vulnerabilities and unchecked distributions."""
    findings = locks.check_known_vulnerability(subject, advisories, today)
    return sort_findings((*findings, *locks.check_not_checked(subject, advisories)))


# Reconciliation of findings by name with verdicts by bytes.
#
# A name is a claim, and files are evidence: where files are known, they count. A build for another
# backend that works and weighs little is neither an error nor clean. Without known files the name
# counts. So no distribution has an error about another vendor and the verdict `ok` or `optional`,
# and none has `bloat` without an error. Parts for another toolkit line of the target's own vendor
# count as another vendor's.


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
            verdicts[owner] = _count_as_wasted(image, verdict, finding)
        foreign = (
            finding.rule in BELONGS and finding.vendor is not None and finding.vendor != vendor
        )
        is_own = finding.rule == "BM104" and finding.vendor == vendor
        if is_own and verdict is not None and verdict.verdict == "ok":
            # It works, and is no build for this backend.
            reason = finding.message.partition(": ")[2] or finding.message
            verdicts[owner] = replace(verdict, verdict="optional", reason=reason)
        if verdict is None or not foreign or (verdict.verdict in UNFIT and not verdict.is_open):
            findings.append(finding)
            continue
        is_hypothesis = image.standings.get(owner) == "open"
        if finding.severity == "error" and (owner in image.tree.held or is_hypothesis):
            finding = replace(finding, severity="warning")
        if verdict.verdict not in UNFIT and finding.severity != "note":
            verdicts[owner] = _not_clean(verdict, finding)
        findings.append(finding)
    return tuple(findings), tuple(verdicts.values())


def _count_as_wasted(image: ImageSubject, verdict: Verdict, finding: Finding) -> Verdict:
    """Count all of it as wasted if its name proves the line, unless something loads it."""
    if verdict.verdict in UNFIT:
        return verdict
    verdict = _not_clean(verdict, finding)
    if verdict.verdict != "bloat":
        return verdict
    sizes = (item.size for item in image.inventory.distributions if item.owner == verdict.owner)
    size = 0 if verdict.owner in image.tree.used else next(sizes, 0)
    return replace(verdict, foreign_bytes=size, certain=True, may_be=None)


def _not_clean(verdict: Verdict, finding: Finding) -> Verdict:
    name: VerdictName = "bloat" if finding.severity == "error" else "optional"
    if verdict.verdict == name:
        return verdict
    reason = finding.message.partition(", not usable on")[0].partition(": libraries of two")[0]
    vendors = {*verdict.vendors, finding.vendor}
    return replace(
        verdict,
        verdict=name,
        reason=f"by its name: {reason.removeprefix(f'{verdict.name} ')}",
        vendors=tuple(sorted(filter(None, vendors))),
    )


class Judge:
    """Judge of the locks and images of one specification."""

    def __init__(
        self,
        spec: Spec,
        fail_on: FailOn,
        today: date,
        fingerprints: Collection[str] = (),
        catalogue: Catalogue | None = None,
    ) -> None:
        """Create a judge with the `fingerprints` of a baseline.

        `catalogue` defaults to the specification's.

        Raises `SpecError` for waivers and severities of rules that do not exist.
        """
        check_waived_rules(spec.waivers)
        check_severities(spec.policy)
        self._spec = spec
        self._fail_on = fail_on
        self._today = today
        self._baseline = fingerprints
        self.catalogue = catalogue or load(spec.catalogue_files)

    @property
    def catalogue_date(self) -> str:
        """Date of the catalogue."""
        return str(self.catalogue.date)

    def has_device(self, backend: str) -> bool:
        """Return True if a backend needs a device, which this machine may not have."""
        return self.catalogue.backends[backend].vendor is not None

    @property
    def backends(self) -> Collection[str]:
        """Backends of the catalogue."""
        return self.catalogue.backends

    def lock(self, target: Target, lock: Lock) -> tuple[Finding, ...]:
        """Return the findings about locked distributions."""
        conda = locks.known_conda_packages(lock, self.catalogue)
        lock = locks.with_conda_packages(lock, conda, self.catalogue)
        return self.settled(check_lock(target, lock, self.catalogue, self._spec.policy))

    def bases(self, target: Target) -> tuple[Finding, ...]:
        """Return the findings about references of base images, for which no lock is needed."""
        subject = Subject(target, self.catalogue, self._spec.policy, None, ())
        return self.settled(check_unpinned_base(subject))

    def advisories(self, target: Target, lock: Lock, advisories: Advisories) -> tuple[Finding, ...]:
        """Return the findings about known vulnerabilities of a lock's distributions."""
        subject = locked(target, lock, self.catalogue, self._spec.policy)
        return self.settled(check_advisories(subject, advisories, self._today))

    def settled(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """Return the findings with the policy's severities, waivers and the baseline applied."""
        counted = apply_policy(findings, self._spec.policy)
        held = apply_waivers(counted, self._spec.waivers, self._today)
        return apply_baseline(held, self._baseline)

    def image(self, target: Target, inventory: Inventory, lock: Lock | None) -> Judgement:
        """Return an image's findings, its distributions' verdicts, and its node classes."""
        return self.settle(self.by_rules(target, inventory, lock))

    def by_rules(
        self,
        target: Target,
        inventory: Inventory,
        lock: Lock | None,
        seen: Sequence[Evidence] | None = None,
        resolution: Resolution | None = None,
    ) -> Judgement:
        """Return the judgement by rules alone.

        It depends on the arguments, on `basis` and on the code only. `seen` and `resolution` are
        those of the inventory, if the caller has them.
        """
        seen = match.evidence(inventory, self.catalogue) if seen is None else seen
        policy = self._spec.policy
        judgement = judge_image(target, inventory, seen, lock, self.catalogue, policy, resolution)
        return replace(judgement, verdicts=name_unparsed_python(judgement.verdicts, inventory))

    def settle(self, judgement: Judgement) -> Judgement:
        """Return a judgement with the policy's severities, waivers and the baseline applied."""
        findings = self.settled(judgement.findings)
        return replace(judgement, findings=findings, fits=mark_accepted(judgement.fits, findings))

    @cached_property
    def basis(self) -> str:
        """Digest of the rules' settings: the policy and the user's part of the catalogue.

        The built-in part of the catalogue belongs to the code.
        """
        files = [self.catalogue.files[str(path)] for path in self._spec.catalogue_files]
        parts = self._spec.policy, files, packaging.__version__
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()

    @property
    def policy(self) -> Policy:
        """Thresholds and allowances of the specification."""
        return self._spec.policy

    def evidence(self, inventory: Inventory) -> tuple[Evidence, ...]:
        """Return the catalogue's evidence about a tree; the same for all backends."""
        return match.evidence(inventory, self.catalogue)

    def wheels(self, wheels: Wheels) -> tuple[tuple[Finding, ...], tuple[Verdict, ...]]:
        """Return the findings about a lock's wheels, and the verdicts with those passed on.

        These are by the rules alone; see `settled`.
        Some wheels may be read in part: see `judge.certainty`.
        """
        judgement = judge_wheels(wheels)
        own = judgement.verdicts
        return (
            judgement.findings,
            pass_through_requirements(wheels.lock, own) if wheels.lock is not None else own,
        )

    def stale_waivers(
        self, findings: Collection[Finding], judged: Collection[str]
    ) -> tuple[Finding, ...]:
        """Return findings about expired waivers, and unused ones if all targets are `judged`."""
        everything = {target.id for target in self._spec.targets}
        complete = judged if everything <= set(judged) else ()
        stale = check_expired_or_unused_waiver(findings, self._spec.waivers, self._today, complete)
        return apply_policy(stale, self._spec.policy)

    def gate(self, findings: Collection[Finding]) -> GateState:
        """Return the state of a gate with these findings."""
        if any(fails(finding, self._fail_on) for finding in findings):
            return "failed"
        if any(map(leaves_open, findings)):
            return "undecided"
        return "passed"
