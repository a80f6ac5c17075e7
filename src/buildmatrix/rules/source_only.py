"""BM107: no wheel of a distribution can be taken, so nothing is known of what it will be.

As long as a finding of this rule is a warning, the run is undecided (`reports.model.leaves_open`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from buildmatrix.lock.model import Package
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
        version = package.version if package is not None else ""
        wanted = name in wheels.target.no_binary or (package is not None and _is_own(package))
        is_built = package is not None and bool(package.source or package.source_only)
        holds = (
            "what it holds is known when it was built" if is_built else "what it holds is not known"
        )
        is_told = name in wheels.askers
        requires = (
            "" if is_told else "; nobody knows yet what it requires, and none of that is in here"
        )
        yield finding(
            "BM107",
            wheels,
            f"{name} {version}".rstrip() + f": {why}; {holds}" + requires,
            severity="note" if wanted else "warning",
            owner=f"{name}=={version}",
            chain=wheels.chain_to(name) or (f"{name} {version}".rstrip(),),
            fix=Fix(
                "pin",
                f"ask for a version of {name} that has a wheel for this target, or look at the "
                "image with `buildmatrix scan`",
                accept("BM107", distribution=name),
            ),
        )


def _is_own(package: Package) -> bool:
    return bool(package.source) and _FOREIGN.match(package.source) is None
