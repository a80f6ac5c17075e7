"""BM105: a release has no build for this backend, so an installer falls back to another one's."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue.releases import Gap, gap
from buildmatrix.rules.belonging import title
from buildmatrix.rules.declared import declaration, finding_about
from buildmatrix.rules.fixes import release_fix
from buildmatrix.rules.model import Finding
from buildmatrix.rules.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Builds for something else, of releases that were never built for this backend's runtime."""
    vendor = subject.own_vendor
    if vendor is None:
        return
    runtime = subject.target.runtime
    for present, match in subject.matches:
        if match.backend == subject.backend or not subject.counts(present, match):
            continue
        missing = gap(present.name, present.version, subject.backend, runtime, subject.catalogue)
        if missing is None:
            continue
        wanted = title(subject.backend, subject.catalogue)
        wanted += "" if runtime == "any" else f" {runtime}"
        yield finding_about(
            "BM105",
            subject,
            present,
            f"{present.name} {missing.release} has no build for {wanted}{_instead(missing)}, so "
            f"{present.version} was taken, which is for "
            f"{title(match.backend, subject.catalogue)}",
            vendor=vendor,
            evidence=declaration(present, match, match.vendor or vendor),
            fix=release_fix(subject, present.name, missing),
        )


def _instead(missing: Gap) -> str:
    others = f" (it has {', '.join(missing.others)})" if missing.others else ""
    if missing.nearest is None:
        return others
    return f"{others}; the nearest that has one is {missing.nearest.release}"
