"""BM106: a lock is older than what it was made from."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.rules.findings import finding
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.wheels import Wheels


def check(wheels: Wheels) -> Iterator[Finding]:
    """At most one finding."""
    if wheels.stale is None:
        return
    path = wheels.lock.path.name if wheels.lock is not None else wheels.target.lock
    yield finding(
        "BM106",
        wheels,
        f"the lock does not fit its inputs, and what is installed is what it says: {wheels.stale}",
        path=wheels.target.lock or path,
        chain=(wheels.target.lock or path,),
        fix=Fix("upgrade", "run `buildmatrix lock`, and commit the result"),
    )
