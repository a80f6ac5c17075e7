"""Judge locks and images by the rules, catalogue and waivers of one run."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import date
from functools import cached_property

import msgspec
import packaging

from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.catalogue.match import evidence
from buildmatrix.catalogue.model import Evidence
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.loader.resolver import Resolution
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
from buildmatrix.judge.advisories.model import Advisories
from buildmatrix.judge.base_images import check_unpinned_base
from buildmatrix.judge.certainty import name_unparsed_python
from buildmatrix.judge.engine import (
    Judgement,
    check_advisories,
    check_lock,
    judge_image,
    judge_wheels,
)
from buildmatrix.judge.fit import mark_accepted
from buildmatrix.judge.locks import Wheels
from buildmatrix.judge.model import Finding, GateState, Verdict
from buildmatrix.judge.subject import Subject, locked
from buildmatrix.judge.verdicts import pass_through_requirements
from buildmatrix.locks.model import Lock
from buildmatrix.matrix.model import Policy, Spec, Target


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
        seen = evidence(inventory, self.catalogue) if seen is None else seen
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
        return evidence(inventory, self.catalogue)

    def wheels(self, wheels: Wheels) -> tuple[tuple[Finding, ...], tuple[Verdict, ...]]:
        """Return the findings about a lock's wheels, and the verdicts with those passed on.

        Some wheels may be read in part: see `judge.certainty`.
        """
        judgement = judge_wheels(wheels)
        own = judgement.verdicts
        return (
            self.settled(judgement.findings),
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
