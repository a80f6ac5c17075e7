"""BM502: an import fails, since a library that Python code opens or calls into is missing.

Or a module is: one of a vendor's software breaks a distribution, any other one is a warning.
What fails since a file links a missing library is BM301's and BM302's.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.inventory.model import PythonImport
from buildmatrix.phrases import listing
from buildmatrix.rules.findings import chain_to_file, finding
from buildmatrix.rules.fixes import accept, fix
from buildmatrix.rules.imports import of_system
from buildmatrix.rules.model import Finding, Fix, Verdict
from buildmatrix.rules.subject import ImageSubject
from buildmatrix.rules.wheels import Wheels


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
    yield from _missing_modules(image)


def _missing_modules(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution that imports modules which are missing."""
    if image.tree.is_single or not _is_all_listed(image):
        return
    missing: dict[str, list[PythonImport]] = {}
    for imported in image.inventory.python_imports:
        is_missing = imported.how == "missing" and imported.provider is None
        if is_missing and of_system(imported.module, image.catalogue) is None:
            missing.setdefault(imported.owner, []).append(imported)
    for owner, statements in sorted(missing.items()):
        verdict = image.verdicts.get(owner)
        if verdict is None or verdict.failure is not None:
            continue
        first = statements[0]
        names = listing(dict.fromkeys(one.module.partition(".")[0] for one in statements))
        place = f"{first.path}:{first.line}"
        yield finding(
            "BM502",
            image,
            f"{verdict.name} {verdict.version} cannot be imported: it imports {names} ({place}), "
            f"which {image.noun} does not have",
            severity="warning",
            owner=owner,
            path=first.path,
            chain=chain_to_file(image, owner, place, first.module),
            fix=Fix(
                "pin",
                f"require what has {names}, or take {verdict.name} out",
                accept("BM502", distribution=verdict.name),
            ),
        )


def _is_all_listed(image: ImageSubject) -> bool:
    """Return True if all modules are known: no wheel is unread, and none has to be built."""
    return not isinstance(image, Wheels) or not (
        image.without_wheel or any(item.path.endswith(".whl") for item in image.inventory.unread)
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
