"""BM107: no wheel of a distribution can be taken, so nothing is known of what it will be."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.rules.findings import finding
from buildmatrix.rules.fixes import accept
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.wheels import Wheels


def check(wheels: Wheels) -> Iterator[Finding]:
    """One finding per distribution; a note where the specification asks for it."""
    for name, why in sorted(wheels.without_wheel.items()):
        package = wheels.packages.get(name)
        version = package.version if package is not None else ""
        wanted = name in wheels.target.no_binary
        is_other = package is not None and bool(package.unknown)
        holds = (
            "what it holds is not known" if is_other else "what it holds is known when it was built"
        )
        is_told = any(name in one.via for one in wheels.packages.values())
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
