"""BM104: the default index's build was chosen, and this backend needs another one.

The PyTorch project serves one build per backend, each from an index of its own, distinguished by
the local version. The default index serves one of them under the plain version.
"""

from __future__ import annotations

from collections.abc import Iterator

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
from buildmatrix.rules.subject import Present, Subject

#: Where a plain version of the torch family is known to be a build for an accelerator. Elsewhere
#: it was one for the CPU for many releases, so there its own dependencies must show it.
_KNOWN_PLATFORM = "linux/amd64"


def check(subject: Subject) -> Iterator[Finding]:
    """Default builds of another backend, and CPU builds where an accelerator should be used."""
    for present, match in subject.matches:
        if match.kind in ("default-build", "with-extra") and not is_by_local_version(match):
            yield from _default_build(subject, present, match)
        elif _is_cpu_build(subject, present, match):
            yield _cpu_build(subject, present, match)


def _default_build(
    subject: Subject, present: Present, match: DistributionMatch
) -> Iterator[Finding]:
    if match.vendor is None or not subject.is_foreign(match):
        return
    routed = match.is_routed
    if routed and from_own_index(present, subject):
        return
    if routed and subject.target.platform != _KNOWN_PLATFORM and not _brings(subject, present):
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


def _brings(subject: Subject, asker: Present) -> bool:
    """Whether a foreign distribution is there because of `asker`."""
    return any(
        match.weight == "strong"
        and subject.is_foreign(match)
        and asker.name in (package.name for package in subject.path_to(present.name))
        for present, match in subject.matches
    )


def _is_cpu_build(subject: Subject, present: Present, match: DistributionMatch) -> bool:
    """A local version of nobody's (`+cpu`), in a target whose backend has an index of its own."""
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
