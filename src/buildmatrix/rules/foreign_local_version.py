"""BM102: a local version says that a wheel was built for another backend."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.rules.belonging import title
from buildmatrix.rules.declared import declaration, finding_about, is_by_local_version, sized
from buildmatrix.rules.fixes import fix
from buildmatrix.rules.model import Finding
from buildmatrix.rules.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Every version whose part behind the `+` names another vendor's backend."""
    for present, match in subject.matches:
        if match.vendor is None or not is_by_local_version(match) or not subject.is_foreign(match):
            continue
        if not subject.counts(present, match):
            continue
        local = present.version.partition("+")[2]
        yield finding_about(
            "BM102",
            subject,
            present,
            f"{sized(present)} was built for {title(match.backend, subject.catalogue)}: its local "
            f"version is +{local}, and this target is for {subject.backend}",
            vendor=match.vendor,
            evidence=declaration(present, match, match.vendor),
            fix=fix(subject, present.name, present.version, "BM102"),
        )
