"""What each installed distribution is on one backend: ok, optional, bloat or broken.

- `broken`: an import loads a file that links a foreign library which exists nowhere in the tree.
- `bloat`: it belongs to another backend, requires what does, or holds foreign bytes above the
  policy's threshold.
- `optional`: it reaches for foreign libraries only when asked to, or holds few foreign bytes.
- `ok`: nothing foreign.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.catalogue.match import distribution
from buildmatrix.catalogue.model import DistributionMatch, Evidence
from buildmatrix.inventory.loader import resolve
from buildmatrix.inventory.model import Distribution, Inventory
from buildmatrix.rules.belonging import is_foreign, title
from buildmatrix.rules.findings import total
from buildmatrix.rules.model import Verdict, VerdictName
from buildmatrix.rules.subject import imported
from buildmatrix.rules.text import listing, size
from buildmatrix.spec.model import Policy

_PYTHON = re.compile(r"python(3\.\d+)/")
#: Markers are evaluated as on the targets, not on the machine that judges.
_ENVIRONMENT = {
    "os_name": "posix",
    "platform_system": "Linux",
    "sys_platform": "linux",
    "platform_machine": "x86_64",
    "extra": "",
}


def verdicts(
    backend: str,
    inventory: Inventory,
    evidence: Sequence[Evidence],
    policy: Policy,
    catalogue: Catalogue | None = None,
) -> tuple[Verdict, ...]:
    """One verdict per installed distribution, sorted by name."""
    catalogue = catalogue or load()
    resolution = resolve(inventory)
    on_import = imported(inventory, resolution.needed)
    tree = _Tree(
        backend=backend,
        catalogue=catalogue,
        installed={item.name: item.version for item in inventory.distributions},
        missing=frozenset(
            (one.binary, one.name) for one in resolution.missing if one.binary in on_import
        ),
        threshold=policy.bloat_threshold,
    )
    by_owner: dict[str, list[Evidence]] = {}
    for item in evidence:
        if item.distribution is not None:
            by_owner.setdefault(item.distribution, []).append(item)
    return tuple(
        _verdict(tree, item, by_owner.get(f"{item.name}=={item.version}", []))
        for item in sorted(inventory.distributions, key=lambda item: (item.name, item.path))
    )


@dataclass(frozen=True, slots=True)
class _Tree:
    """What all verdicts of one tree have in common."""

    backend: str
    catalogue: Catalogue
    installed: Mapping[str, str]
    #: Binary that an import loads, and a library that it links and that is nowhere.
    missing: frozenset[tuple[str, str]]
    threshold: int

    def is_foreign(self, thing: Evidence | DistributionMatch) -> bool:
        return is_foreign(thing, self.backend, self.catalogue)


def _verdict(tree: _Tree, item: Distribution, evidence: list[Evidence]) -> Verdict:
    foreign = [one for one in evidence if one.weight == "strong" and tree.is_foreign(one)]
    belongs = [one for one in foreign if one.kind == "declared"]
    held = [one for one in foreign if one.kind in ("bundled", "tool", "device-code")]
    foreign_bytes = item.size if belongs else total(held)
    required = list(_foreign_requirements(tree, item))
    verdict, reason = _judge(tree, foreign, belongs, foreign_bytes, required)
    vendors = {one.vendor for one in foreign} | {match.vendor for _, match in required}
    return Verdict(
        name=item.name,
        version=item.version,
        backend=tree.backend,
        verdict=verdict,
        reason=reason,
        foreign_bytes=foreign_bytes,
        vendors=tuple(sorted(vendor for vendor in vendors if vendor is not None)),
        architectures=_architectures(evidence),
    )


def _judge(
    tree: _Tree,
    foreign: Sequence[Evidence],
    belongs: Sequence[Evidence],
    foreign_bytes: int,
    required: Sequence[tuple[str, DistributionMatch]],
) -> tuple[VerdictName, str]:
    lost = [one for one in foreign if (one.path, one.detail) in tree.missing]
    if lost and not (required and len(tree.installed) == 1):
        # A single wheel that requires what is missing would get it on installation.
        return "broken", f"{lost[0].path} links {lost[0].detail}, which is nowhere in the tree"
    if belongs:
        return "bloat", f"it belongs to {title(belongs[0].backend, tree.catalogue)}"
    if required:
        return "bloat", f"it requires {listing(name for name, _ in required)}"
    if foreign_bytes > tree.threshold:
        held = title(max(foreign, key=lambda one: one.size).backend, tree.catalogue)
        return "bloat", f"{size(foreign_bytes)} of it are for {held}"
    if foreign_bytes:
        return "optional", f"only {size(foreign_bytes)} of it are foreign"
    if foreign:
        return "optional", f"it reaches for {listing(one.detail for one in foreign)} when asked to"
    return "ok", "nothing foreign is loaded, shipped or required"


def _foreign_requirements(
    tree: _Tree, item: Distribution
) -> Iterator[tuple[str, DistributionMatch]]:
    """Distributions that it requires without condition and that belong to another backend.

    What is installed says what it is. For a wheel alone, the default index would be asked.
    """
    environment = _environment(item)
    for line in item.requires:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue  # Installers ignore what they cannot read here, too.
        if requirement.marker is not None and not requirement.marker.evaluate(environment):
            continue
        name = canonicalize_name(requirement.name)
        if name not in tree.installed and len(tree.installed) > 1:
            continue
        match = distribution(name, tree.installed.get(name, ""), tree.catalogue)
        if match is None or not tree.is_foreign(match) or tree.backend in match.tolerated_in:
            continue
        if match.weight == "strong" or match.kind == "default-build":
            yield name, match


def _environment(item: Distribution) -> dict[str, str]:
    """Values of environment markers for the interpreter that `item` is installed for."""
    environment: dict[str, str] = {}
    for name, value in default_environment().items():
        if isinstance(value, str):
            environment[name] = value
    environment.update(_ENVIRONMENT)
    python = _PYTHON.search(item.path)
    if python is not None:
        environment["python_version"] = python[1]
        environment["python_full_version"] = f"{python[1]}.0"
    return environment


def _architectures(evidence: Sequence[Evidence]) -> Mapping[str, tuple[str, ...]]:
    """GPU architectures by vendor, of this backend's code and of others'."""
    found: dict[str, set[str]] = {}
    for one in evidence:
        if one.architectures:
            found.setdefault(one.vendor, set()).update(one.architectures)
    return {vendor: tuple(sorted(archs)) for vendor, archs in sorted(found.items())}
