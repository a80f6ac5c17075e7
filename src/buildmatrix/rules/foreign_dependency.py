"""BM101: a distribution belongs to another backend."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue.model import DistributionMatch
from buildmatrix.rules.belonging import title
from buildmatrix.rules.declared import declaration, finding_about, is_by_local_version, sized
from buildmatrix.rules.fixes import fix
from buildmatrix.rules.model import Finding, Severity
from buildmatrix.rules.subject import Present, Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Every distribution that is known by its name to belong to another vendor."""
    for present, match in subject.matches:
        severity = _severity(present, match, subject)
        if severity is None or match.vendor is None or is_by_local_version(match):
            continue
        yield finding_about(
            "BM101",
            subject,
            present,
            f"{sized(present)} {_belongs(match)} {title(match.backend, subject.catalogue)}, "
            f"not usable on {subject.backend}",
            severity=severity,
            vendor=match.vendor,
            evidence=declaration(present, match, match.vendor),
            fix=fix(subject, present.name, present.version, "BM101"),
        )


def _severity(present: Present, match: DistributionMatch, subject: Subject) -> Severity | None:
    """An error for what proves a backend; None for what is not foreign, or BM104's to judge."""
    if not subject.is_foreign(match) or subject.backend in match.tolerated_in:
        return None
    if match.kind in ("default-build", "with-extra"):
        return None
    if match.weight == "strong":
        return "error"
    if not subject.counts(present, match):
        return None
    if match.kind == "embedded":
        return "warning"
    if match.kind == "multi-backend":
        # One wheel for several backends; foreign where the catalogue has an order for this one.
        return "warning" if subject.backend in match.replace else None
    return "note" if match.weight == "weak" else None


def _belongs(match: DistributionMatch) -> str:
    if match.kind in ("embedded", "multi-backend"):
        return "brings files for"
    if match.kind == "pure":
        return "is Python code for"
    return "belongs to"
