"""BM104: the default index's build was chosen, and this backend needs another one.

The PyTorch project serves one build per backend, each from an index of its own, distinguished by
the local version. The default index serves one of them under the plain version.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue.lookup import build_of
from buildmatrix.catalogue.model import DistributionMatch
from buildmatrix.rules.belonging import title
from buildmatrix.rules.declared import (
    declaration,
    finding_about,
    from_own_index,
    is_by_local_version,
    sized,
)
from buildmatrix.rules.fixes import fix, index_fix
from buildmatrix.rules.model import Finding
from buildmatrix.rules.subject import ImageSubject, Present, Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Default builds of another backend, and CPU builds where an accelerator should be used."""
    matches = {present.owner: match for present, match in subject.matches}
    for present in subject.present:
        match = matches.get(present.owner)
        build = build_of(present.name, subject.catalogue)
        if match is not None and _is_cpu_build(subject, present, match):
            yield _cpu_build(subject, present, match)
        elif build is not None and _holds_nothing(subject, present, build):
            yield _other_build(subject, present, build)
        elif (
            match is not None
            and match.kind in ("default-build", "with-extra")
            and not is_by_local_version(match)
        ):
            yield from _default_build(subject, present, match)


def _default_build(
    subject: Subject, present: Present, match: DistributionMatch
) -> Iterator[Finding]:
    if match.vendor is None or not subject.is_foreign(match):
        return
    routed = match.is_routed
    if routed and from_own_index(present, subject):
        return
    if not subject.counts(present, match):
        return
    if not routed and match.weight != "strong" and subject.backend not in match.replace:
        return
    yield finding_about(
        "BM104",
        subject,
        present,
        f"{sized(present)} is the default build, which is for "
        f"{title(match.backend, subject.catalogue)}{_other(subject, match)}",
        severity="error" if routed or match.weight == "strong" else "warning",
        vendor=match.vendor,
        evidence=declaration(present, match, match.vendor),
        fix=index_fix(subject, present.name)
        if routed
        else fix(subject, present.name, present.version, "BM104"),
    )


def _other(subject: Subject, match: DistributionMatch) -> str:
    has_build = subject.backend in match.replace
    return f"; there is a build for {subject.backend}" if has_build else ""


def _holds_nothing(subject: Subject, present: Present, build: DistributionMatch) -> bool:
    """Return True if a build for this backend was read, and contains nothing for it."""
    return (
        build.is_build
        and build.kind != "multi-backend"
        and build.backend == subject.backend
        and subject.standings.get(present.owner) == "refuted"
        and isinstance(subject, ImageSubject)
        and present.owner in subject.tree.native_of
    )


def _other_build(subject: Subject, present: Present, build: DistributionMatch) -> Finding:
    backend = subject.catalogue.backends[subject.backend]
    family = {route.family for route in backend.indexes}
    name = title(subject.backend, subject.catalogue)
    return finding_about(
        "BM104",
        subject,
        present,
        f"{sized(present)} holds nothing for {name}: this build cannot use its devices",
        severity="error" if present.name in family else "warning",
        vendor=build.vendor,
        evidence=declaration(present, build, build.vendor or ""),
        fix=index_fix(subject, present.name) if build.is_routed else None,
    )


def _is_cpu_build(subject: Subject, present: Present, match: DistributionMatch) -> bool:
    """Return True for a local version without a vendor (`+cpu`), if the backend has an index."""
    own = subject.catalogue.backends.get(subject.backend)
    return (
        match.vendor is None
        and match.backend != subject.backend
        and "+" in present.version
        and is_by_local_version(match)
        and own is not None
        and own.vendor is not None
        and bool(own.indexes)
    )


def _cpu_build(subject: Subject, present: Present, match: DistributionMatch) -> Finding:
    own = subject.catalogue.backends[subject.backend]
    return finding_about(
        "BM104",
        subject,
        present,
        f"{sized(present)} is a build for the {match.backend}: it cannot use the devices of "
        f"{title(subject.backend, subject.catalogue)}",
        vendor=own.vendor,
        evidence=declaration(present, match, own.vendor or ""),
        fix=index_fix(subject, present.name),
    )
