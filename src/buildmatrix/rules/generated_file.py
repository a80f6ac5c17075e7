"""BM903: a committed generated file is not what `buildmatrix generate` writes now."""

from __future__ import annotations

from collections.abc import Iterable

from buildmatrix.rules.findings import run_finding
from buildmatrix.rules.model import Finding, Fix


def check(paths: Iterable[str]) -> tuple[Finding, ...]:
    """One finding per path that `build.committed` names; they belong to no target."""
    return tuple(
        run_finding(
            "BM903",
            f"{path} in git differs from what the specification and the locks generate",
            path=path,
            fix=Fix("rebuild", "run `buildmatrix generate`, and commit what it writes"),
        )
        for path in sorted(paths)
    )
