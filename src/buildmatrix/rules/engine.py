"""Runs the rules over one target.

A finding's fingerprint is made of rule, backend, distribution without version, vendor, and for
rules that judge single paths the path without hashes and versions: it stays the same when a target
is renamed or a distribution is upgraded, so waivers and baselines outlive both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.model import Evidence
from buildmatrix.inventory.loader import Resolution
from buildmatrix.inventory.model import Inventory
from buildmatrix.lock.model import Lock
from buildmatrix.rules import (
    bundled_library,
    default_build,
    driver_library,
    foreign_base,
    foreign_dependency,
    foreign_device_code,
    foreign_dlopen,
    foreign_environment,
    foreign_local_version,
    foreign_needed,
    foreign_tool,
    missing_architecture,
    other_runtime,
    path_owned_twice,
    size_budget,
    two_runtimes,
    unread_file,
    unresolved_soname,
)
from buildmatrix.rules.model import Finding
from buildmatrix.rules.subject import Image, Subject, built, locked
from buildmatrix.spec.model import Policy, Target

#: Rules about distributions, locked or installed.
OF_DISTRIBUTIONS: tuple[Callable[[Subject], Iterator[Finding]], ...] = (
    foreign_dependency.check,
    foreign_local_version.check,
    other_runtime.check,
    default_build.check,
)
#: Rules about what lies in an image.
OF_IMAGES: tuple[Callable[[Image], Iterator[Finding]], ...] = (
    bundled_library.check,
    driver_library.check,
    foreign_tool.check,
    path_owned_twice.check,
    foreign_needed.check,
    unresolved_soname.check,
    two_runtimes.check,
    foreign_device_code.check,
    missing_architecture.check,
    foreign_dlopen.check,
    foreign_base.check,
    foreign_environment.check,
    size_budget.check,
    unread_file.check,
)


def check_lock(
    target: Target, lock: Lock, catalogue: Catalogue, policy: Policy
) -> tuple[Finding, ...]:
    """What the locked distributions would bring into the target."""
    subject = locked(target, lock, catalogue, policy)
    return in_order(one for rule in OF_DISTRIBUTIONS for one in rule(subject))


def check_image(
    target: Target,
    inventory: Inventory,
    evidence: Sequence[Evidence],
    lock: Lock | None,
    catalogue: Catalogue,
    policy: Policy,
    resolution: Resolution | None = None,
) -> tuple[Finding, ...]:
    """What lies in the target's image. `lock` gives the chains up to the requirement lines.

    `resolution` is that of the inventory, for a caller that has it already.
    """
    image = built(target, inventory, evidence, lock, catalogue, policy, resolution)
    declared = (one for rule in OF_DISTRIBUTIONS for one in rule(image))
    seen = (one for rule in OF_IMAGES for one in rule(image))
    return in_order((*declared, *seen))


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sorted by target, rule, distribution, path and vendor."""
    return tuple(
        sorted(
            findings,
            key=lambda one: (
                one.target,
                one.rule,
                one.distribution or "",
                one.path or "",
                one.vendor or "",
                one.version or "",
            ),
        )
    )
