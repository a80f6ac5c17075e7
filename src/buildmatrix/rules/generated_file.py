"""BM903: a committed generated file is not what `buildmatrix generate` writes now."""

from __future__ import annotations

from collections.abc import Iterable

from buildmatrix.rules.findings import fingerprint
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.registry import BY_CODE


def check(paths: Iterable[str]) -> tuple[Finding, ...]:
    """One finding per path that `build.committed` names; they belong to no target."""
    rule = BY_CODE["BM903"]
    return tuple(
        Finding(
            rule=rule.code,
            name=rule.name,
            severity=rule.severity,
            target="",
            backend="",
            vendor=None,
            message=f"{path} in git is not what the specification and the locks give",
            path=path,
            chain=(path,),
            fix=Fix("rebuild", "run `buildmatrix generate`, and commit what it writes"),
            fingerprint=fingerprint(rule.code, "", None, path, None),
        )
        for path in sorted(paths)
    )
