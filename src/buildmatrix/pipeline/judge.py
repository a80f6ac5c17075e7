"""Facts → findings, with the rules, the catalogue and the waivers of one run."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date

from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.errors import Problem, SpecError
from buildmatrix.inventory.loader import resolve
from buildmatrix.inventory.model import Inventory
from buildmatrix.lock.model import Lock
from buildmatrix.reports.model import FailOn, fails
from buildmatrix.rules import waivers
from buildmatrix.rules.engine import check_image, check_lock
from buildmatrix.rules.model import Finding, GateState, Verdict
from buildmatrix.rules.registry import BY_CODE
from buildmatrix.rules.verdicts import verdicts
from buildmatrix.spec.model import Spec, Target

#: The rule about what could not be read: as long as it finds something, nothing is decided.
_UNREAD = "BM902"


class Judge:
    """Judges the locks and images of one specification."""

    def __init__(self, spec: Spec, fail_on: FailOn, today: date) -> None:
        """Raises `SpecError` for waivers of rules that do not exist."""
        problems = [
            Problem(
                f"there is no rule {waiver.rule}",
                waiver.position.file,
                waiver.position.line,
                hint="`buildmatrix rules` lists all of them",
            )
            for waiver in spec.waivers
            if waiver.rule not in BY_CODE
        ]
        if problems:
            raise SpecError(problems)
        self._spec = spec
        self._fail_on = fail_on
        self._today = today
        self._catalogue = load()

    @property
    def catalogue_date(self) -> str:
        """Date of the catalogue that everything is judged by."""
        return str(self._catalogue.date)

    def has_device(self, backend: str) -> bool:
        """Whether a backend needs a device that this machine may not have."""
        return self._catalogue.backends[backend].vendor is not None

    @property
    def backends(self) -> Collection[str]:
        """Backends that the catalogue knows."""
        return self._catalogue.backends

    def lock(self, target: Target, lock: Lock) -> tuple[Finding, ...]:
        """What the locked distributions would bring in."""
        findings = check_lock(target, lock, self._catalogue, self._spec.policy)
        return waivers.apply(findings, self._spec.waivers, self._today)

    def image(
        self, target: Target, inventory: Inventory, lock: Lock | None
    ) -> tuple[tuple[Finding, ...], tuple[Verdict, ...]]:
        """What lies in an image, and what each distribution in it is on this backend."""
        policy = self._spec.policy
        seen = evidence(inventory, self._catalogue)
        led = resolve(inventory)
        findings = check_image(target, inventory, seen, lock, self._catalogue, policy, led)
        return (
            waivers.apply(findings, self._spec.waivers, self._today),
            verdicts(target.backend, inventory, seen, policy, self._catalogue, led),
        )

    def stale_waivers(
        self, findings: Collection[Finding], judged: Collection[str]
    ) -> tuple[Finding, ...]:
        """Waivers that ran out; those of no use, too, once all targets are `judged`."""
        everything = {target.id for target in self._spec.targets}
        known = judged if everything <= set(judged) else ()
        return waivers.check(findings, self._spec.waivers, self._today, known)

    def gate(self, findings: Collection[Finding]) -> GateState:
        """What a gate with these findings is."""
        if any(fails(finding, self._fail_on) for finding in findings):
            return "failed"
        if any(finding.rule == _UNREAD and finding.waived is None for finding in findings):
            return "undecided"
        return "passed"
