"""BM111: a locked wheel requires what the lock lacks, or has in another version.

Installers take a lock as it is: `uv pip check` says it once everything is installed.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.locks.platform import installed_environment
from buildmatrix.locks.requires import unmet
from buildmatrix.phrases import listing
from buildmatrix.rules.findings import finding
from buildmatrix.rules.fixes import accept
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.wheels import Wheels
from buildmatrix.text import shown


def check(wheels: Wheels) -> Iterator[Finding]:
    """One finding per distribution that is required; none for locks that buildmatrix resolved."""
    lock = wheels.lock
    if lock is None or lock.inputs:
        return
    askers: dict[str, dict[str, str]] = {}
    environment = installed_environment(wheels.target)
    for asker, need in unmet(lock, wheels.inventory.distributions, environment):
        line = need.line.partition(";")[0].strip()
        askers.setdefault(need.name, {}).setdefault(asker, line)
    for name, lines in sorted(askers.items()):
        present = wheels.packages.get(name)
        first = wheels.packages[next(iter(lines))]
        has = f"has {name} {present.version}" if present is not None else "lacks it"
        said = (f"{wheels.packages[asker].name} {wheels.packages[asker].version} requires {line}"
                for asker, line in lines.items())  # fmt: skip
        yield finding(
            "BM111",
            wheels,
            f"{shown(listing(said, 3, '; '))}, and this lock {has}",
            owner=f"{first.name}=={first.version}",
            chain=(*(wheels.chain_to(first.name)), shown(next(iter(lines.values())))),
            fix=Fix(
                "upgrade",
                "lock again with the tool that made the lock; what the project overrides on "
                "purpose, accept with a [[waive]]",
                accept("BM111", distribution=first.name),
            ),
            identity=name,
        )
