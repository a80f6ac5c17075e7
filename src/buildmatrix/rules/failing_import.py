"""BM502: an import fails, since a library that Python code opens or calls into is missing.

What fails since a file links a missing library is BM301's and BM302's.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.phrases import listing
from buildmatrix.rules.findings import chain_to_file, finding
from buildmatrix.rules.fixes import fix
from buildmatrix.rules.model import Finding, Verdict
from buildmatrix.rules.subject import ImageSubject


def check(image: ImageSubject) -> Iterator[Finding]:
    """Yield one finding per distribution that is itself broken; it names those that import it."""
    for owner, verdict in image.verdicts.items():
        failure = verdict.failure
        if failure is None or failure.kind in ("link", "plugin"):
            continue
        yield finding(
            "BM502",
            image,
            f"{verdict.name} {verdict.version} cannot be imported on {image.backend}: "
            f"{failure.reason}{_followers(image, owner)}",
            vendor=failure.vendor or None,
            owner=owner,
            path=failure.path,
            evidence=failure.evidence,
            chain=chain_to_file(image, owner, failure.place, failure.name),
            fix=fix(image, verdict.name, verdict.version, "BM502"),
        )


def _followers(image: ImageSubject, owner: str) -> str:
    """Those that are broken only because they import it."""
    names = [
        verdict.name for verdict in image.verdicts.values() if _is_broken_by(image, verdict, owner)
    ]
    return f"; with it fails {listing(names)}, which imports it" if names else ""


def _is_broken_by(image: ImageSubject, verdict: Verdict, owner: str) -> bool:
    return (
        verdict.verdict == "broken"
        and verdict.failure is None
        and any(
            imported.owner == verdict.owner
            and imported.provider == owner
            and imported.how == "imported"
            for imported in image.inventory.python_imports
        )
    )
