"""BM103: a distribution is for another toolkit line of the same backend."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.rules.belonging import title
from buildmatrix.rules.declared import declaration, finding_about, sized
from buildmatrix.rules.fixes import line_fix
from buildmatrix.rules.model import Finding
from buildmatrix.rules.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Every distribution of this backend whose toolkit line is not the target's."""
    expected = subject.line
    for present, match, line in subject.lined:
        if line == expected or expected is None or match.vendor is None:
            continue
        if not subject.counts(present, match):
            continue
        name = title(subject.backend, subject.catalogue)
        yield finding_about(
            "BM103",
            subject,
            present,
            f"{sized(present)} is for {name} {line}, and this target is for {name} {expected}: "
            "libraries of two lines do not work together",
            severity="error" if match.weight == "strong" else "warning",
            vendor=match.vendor,
            evidence=declaration(present, match, match.vendor),
            fix=line_fix(subject, present.name, present.version, expected),
        )
