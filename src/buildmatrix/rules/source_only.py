"""BM107: no wheel of a distribution can be taken, so nothing is known of what it will be.

As long as a finding of this rule is a warning, the run is undecided
(`reports.run.model.leaves_open`).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator

from buildmatrix.locks.model import Package
from buildmatrix.rules.findings import finding
from buildmatrix.rules.fixes import accept
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.wheels import Wheels

#: How the address of a repository or an archive looks, as against that of a folder.
_FOREIGN = re.compile(r"[a-z]+\+|.*://|.*\.(?:zip|tar(?:\.\w+)?|tgz|tbz2?)(?:$|#)", re.IGNORECASE)


def check(wheels: Wheels) -> Iterator[Finding]:
    """One finding per distribution.

    A note where a build is what was asked for: by the specification, or by naming a folder of the
    user's own.
    """
    for name, why in sorted(wheels.without_wheel.items()):
        package = wheels.packages.get(name)
        label = f"{name} {package.version if package is not None else ''}".rstrip()
        is_own = package is not None and _is_own(package)
        is_built = package is not None and not package.unknown and _is_built(package)
        holds = (
            "its contents are known only after it is built"
            if is_built
            else "its contents are not known"
        )
        is_told = name in wheels.askers or (
            package is not None
            and (package.requires is not None or (is_own and _is_read(package, wheels.askers)))
        )
        requires = "" if is_told else "; what it requires is not known yet, and is not judged here"
        advice = (
            f"ask for a version of {name} that has a wheel for this target, or look at the image "
            "with `buildmatrix scan`"
            if is_built
            else f"ask for a version and a file of {name} that the index has"
        )
        yield finding(
            "BM107",
            wheels,
            f"{label}: {why}; {holds}{requires}",
            severity="note" if is_own or name in wheels.target.no_binary else "warning",
            owner=f"{name}=={package.version if package is not None else ''}",
            chain=wheels.chain_to(name) or (label,),
            fix=Fix("pin", advice, accept("BM107", distribution=name)),
        )


def _is_built(package: Package) -> bool:
    return bool(package.source or package.source_only)


def _is_own(package: Package) -> bool:
    return bool(package.source) and _FOREIGN.match(package.source) is None


def _is_read(package: Package, askers: Collection[str]) -> bool:
    """Whether what a folder requires is known: lines of its project asked for something."""
    lines = posixpath.join(posixpath.normpath(package.source), "pyproject.toml:")
    return any(asker.startswith(lines) for asker in askers)
