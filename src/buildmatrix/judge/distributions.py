"""Rules about names, versions, indexes and requirements of distributions:
BM101 to BM105 and BM108 to BM110.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.base.text import listing, size
from buildmatrix.catalogue.lookup import build_of
from buildmatrix.catalogue.model import DistributionMatch, Evidence
from buildmatrix.catalogue.releases import gap, runtime_of_build, toolkit_line
from buildmatrix.facts.inventory.conda import CONDA_PREFIX
from buildmatrix.judge.findings import chain_to_file, finding
from buildmatrix.judge.fixes import fix, index_fix, line_fix, release_fix
from buildmatrix.judge.model import Finding, Fix, Severity
from buildmatrix.judge.subject import ImageSubject, Present, Subject
from buildmatrix.judge.verdicts import useless_requirements
from buildmatrix.locks.plan import index_of

# Shared helpers


def _finding(
    code: str,
    subject: Subject,
    present: Present,
    match: DistributionMatch,
    message: str,
    *,
    severity: Severity | None = None,
    vendor: str | None = None,
    evidence: tuple[Evidence, ...] = (),
    fix: Fix | None = None,
) -> Finding:
    """A finding of rule `code` about a name or a version, which is the evidence by default."""
    vendor = vendor or match.vendor
    return finding(
        code,
        subject,
        message,
        severity=severity,
        vendor=vendor,
        owner=present.owner,
        evidence=evidence or declaration(present, match, match.vendor or vendor),
        fix=fix,
    )


def declaration(
    present: Present, match: DistributionMatch, vendor: str | None
) -> tuple[Evidence, ...]:
    """The evidence that a name or a version is; none without a vendor."""
    if vendor is None:
        return ()
    return (
        Evidence(
            kind="declared",
            vendor=vendor,
            backend=match.backend,
            path=present.path,
            detail=f"{present.name} {present.version}",
            role="package",
            confidence=match.confidence,
            weight=match.weight,
            toolkit=match.toolkit,
            size=present.size or 0,
            distribution=present.owner,
        ),
    )


def name_with_size(present: Present) -> str:
    """Return `torch 2.9.0 (901.4 MB)`; without the size if it is unknown."""
    return f"{present} ({size(present.size)})" if present.size else str(present)


def is_by_local_version(match: DistributionMatch) -> bool:
    """Return True if a distribution was matched by its local version, not by its name."""
    return "+" in match.entry


# BM101: a distribution belongs to another backend


_BELONGS = {
    "embedded": "brings files for",
    "multi-backend": "brings files for",
    "pure": "is Python code for",
}


def check_foreign_dependency(subject: Subject) -> Iterator[Finding]:
    """Every distribution that is known by its name to belong to another vendor."""
    for present, match in subject.matches:
        severity = _dependency_severity(present, match, subject)
        if severity is None or match.vendor is None or is_by_local_version(match):
            continue
        yield _finding(
            "BM101",
            subject,
            present,
            match,
            f"{name_with_size(present)} {_BELONGS.get(match.kind, 'belongs to')} "
            f"{subject.catalogue.title(match.backend)}, not usable on {subject.backend}",
            severity=severity,
            fix=fix(subject, present.name, present.version, "BM101"),
        )


def _dependency_severity(
    present: Present, match: DistributionMatch, subject: Subject
) -> Severity | None:
    """Return the severity of a foreign distribution; None if it is not foreign, or BM104's."""
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


# BM102: a local version says that a wheel was built for another backend


def check_foreign_local_version(subject: Subject) -> Iterator[Finding]:
    """Every version whose part behind the `+` names another vendor's backend."""
    for present, match in subject.matches:
        if match.vendor is None or not is_by_local_version(match) or not subject.is_foreign(match):
            continue
        if not subject.counts(present, match):
            continue
        local = present.version.partition("+")[2]
        build = f"its local version is +{local}"
        if present.name.startswith(CONDA_PREFIX):
            build = f"its build is {local}"
        yield _finding(
            "BM102",
            subject,
            present,
            match,
            f"{name_with_size(present)} was built for "
            f"{subject.catalogue.title(match.backend)}: {build}, and this target is for "
            f"{subject.backend}",
            fix=fix(subject, present.name, present.version, "BM102"),
        )


# BM103: a distribution is for another toolkit line of the same backend


def check_other_runtime(subject: Subject) -> Iterator[Finding]:
    """Every distribution of this backend whose toolkit line is not the target's."""
    expected = subject.line
    for present, match, line in subject.lined:
        if line == expected or expected is None or match.vendor is None:
            continue
        if not subject.counts(present, match):
            continue
        name = subject.catalogue.title(subject.backend)
        yield _finding(
            "BM103",
            subject,
            present,
            match,
            f"{name_with_size(present)} is for {name} {line}, and this target is for {name} "
            f"{expected}: libraries of two lines do not work together",
            severity="error" if _proves_line(present, match) else "warning",
            fix=line_fix(subject, present.name, present.version, expected),
        )


def _proves_line(present: Present, match: DistributionMatch) -> bool:
    """Return True if the toolkit of a match is that of installed libraries.

    What a meta package in a lock of conda pins is in the lock itself, and channels mix: NVIDIA's
    packages for 11.8 take conda-forge's libcufile, which requires 12.5.
    """
    is_pin = match.kind == "meta" and present.name.startswith(CONDA_PREFIX)
    return match.weight == "strong" and not is_pin


# BM104: the default index's build was chosen, but this backend needs another one.
#
# The PyTorch project serves one build per backend, each from its own index and with its own local
# version. The default index serves one of them under the plain version.


def check_default_build(subject: Subject) -> Iterator[Finding]:
    """Default builds of another backend, and CPU builds where an accelerator should be used."""
    own = subject.catalogue.backends.get(subject.backend)
    indexes = own.indexes if own is not None else ()
    families = {route.family for route in indexes}
    name = subject.catalogue.title(subject.backend)
    matches = {present.owner: match for present, match in subject.matches}
    for present in subject.present:
        match = matches.get(present.owner)
        build = build_of(present.name, subject.catalogue)
        name_in_index = subject.catalogue.conda.get(
            present.name.removeprefix(CONDA_PREFIX), present.name
        )
        if present.name.startswith(CONDA_PREFIX) and name_in_index not in families:
            continue  # Libraries for data have builds for the CPU in all environments.
        if match is not None and indexes and _is_cpu_build(subject, present, match):
            yield _finding(
                "BM104",
                subject,
                present,
                match,
                f"{name_with_size(present)} is a build for the {match.backend}: it cannot use the "
                f"devices of {name}",
                vendor=subject.own_vendor,
                fix=index_fix(subject, present.name),
            )
        elif build is not None and _holds_nothing(subject, present, build):
            yield _finding(
                "BM104",
                subject,
                present,
                build,
                f"{name_with_size(present)} holds nothing for {name}: this build cannot use its "
                "devices",
                severity="error" if present.name in families else "warning",
                fix=index_fix(subject, present.name) if build.is_routed else None,
            )
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
    named = {url.rstrip("/") for url in subject.target.index.values()}
    if routed and present.index is not None and present.index.rstrip("/") in named:
        return
    if not subject.counts(present, match):
        return
    has_build = subject.backend in match.replace
    if not routed and match.weight != "strong" and not has_build:
        return
    yield _finding(
        "BM104",
        subject,
        present,
        match,
        f"{name_with_size(present)} is the default build, which is for "
        f"{subject.catalogue.title(match.backend)}"
        + (f"; there is a build for {subject.backend}" if has_build else ""),
        severity="error" if routed or match.weight == "strong" else "warning",
        fix=index_fix(subject, present.name)
        if routed
        else fix(subject, present.name, present.version, "BM104"),
    )


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


def _is_cpu_build(subject: Subject, present: Present, match: DistributionMatch) -> bool:
    """Return True for a local version without a vendor (`+cpu`) where the backend has one."""
    return (
        match.vendor is None
        and match.backend != subject.backend
        and "+" in present.version
        and is_by_local_version(match)
        and subject.own_vendor is not None
    )


# BM105: a release has no build for this backend, so an installer takes another backend's


def check_no_build_for_backend(subject: Subject) -> Iterator[Finding]:
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
        wanted = subject.catalogue.title(subject.backend)
        wanted += "" if runtime == "any" else f" {runtime}"
        others = f" (it has {', '.join(missing.others)})" if missing.others else ""
        if missing.nearest is not None:
            others += f"; the nearest that has one is {missing.nearest.release}"
        yield _finding(
            "BM105",
            subject,
            present,
            match,
            f"{present.name} {missing.release} has no build for {wanted}{others}, so "
            f"{present.version} was taken, which is for "
            f"{subject.catalogue.title(match.backend)}",
            vendor=vendor,
            fix=release_fix(subject, present.name, missing),
        )


# BM108: a build comes from another index than the target's index for its family.
#
# Foreign local versions are BM102's, default builds BM104's.


def check_wrong_index(subject: Subject) -> Iterator[Finding]:
    """Members of a routed family that did not take the route."""
    reported = {
        item.distribution
        for rule in (check_foreign_local_version, check_default_build)
        for item in rule(subject)
    }
    for present, match in subject.matches:
        if present.name in reported:
            continue
        strayed = _find_other_index(present, subject) or _find_other_route(present, match, subject)
        if strayed is None:
            continue
        wanted, instead = strayed
        yield _finding(
            "BM108",
            subject,
            present,
            match,
            f"{name_with_size(present)} {instead}, and this target takes its family from {wanted}",
            fix=Fix(
                "index",
                f"lock again with `buildmatrix lock`; where nothing changes, name {present.name} "
                "in a requirement file, so that the route covers it",
            ),
        )


def _find_other_index(present: Present, subject: Subject) -> tuple[str, str] | None:
    """Return the specified index, and the other source of a distribution."""
    wanted = index_of(present.name, subject.target)
    if wanted is None or present.index is None:
        return None
    if present.index.rstrip("/") == wanted.rstrip("/"):
        return None
    return wanted, f"comes from {present.index}"


def _find_other_route(
    present: Present, match: DistributionMatch, subject: Subject
) -> tuple[str, str] | None:
    """Return a build other than that of uv's torch route, by local version or index."""
    if present.name.startswith(CONDA_PREFIX):
        return None
    route = subject.target.torch
    own = subject.catalogue.backends.get(subject.backend)
    routes = {index.name for index in own.indexes} if own is not None else set()
    if route is None or route not in routes or match.backend != subject.backend:
        return None
    local = present.version.partition("+")[2]
    if runtime_of_build(match.build) is not None and match.kind == "native" and "+" in match.entry:
        return None if match.build == route else (route, f"was built for {match.build}")
    if not match.is_routed:
        return None
    place = (present.index or "").rstrip("/").rpartition("/")[2]
    if local or not place or place == route:
        return None
    return route, f"comes from {present.index}"


# BM109: a lock has distributions for two toolkit lines of this backend.
#
# BM103 names those that are not for the target's line. No choice of a base image fixes two lines.


def check_two_lines(subject: Subject) -> Iterator[Finding]:
    """At most one finding, at the line that has fewer distributions or is not the target's."""
    lines: dict[str, list[tuple[Present, DistributionMatch]]] = {}
    for present, match in subject.matches:
        if match.backend == subject.backend and match.toolkit and _proves_line(present, match):
            lines.setdefault(match.toolkit, []).append((present, match))
    if len(lines) < 2:
        return
    expected = toolkit_line(subject.target.runtime)
    if expected not in lines:
        expected = max(lines, key=lambda line: (len(lines[line]), int(line)))
    odd = [item for line in sorted(lines) if line != expected for item in lines[line]]
    present, match = min(odd, key=lambda pair: (len(subject.chain_to(pair[0].name)), pair[0].name))
    name = subject.catalogue.title(subject.backend)
    yield _finding(
        "BM109",
        subject,
        present,
        match,
        f"{name} {' and '.join(sorted(lines, key=int))} are both in this lock: "
        f"{listing(str(item) for item, _ in odd)} beside "
        f"{listing(str(item) for item, _ in lines[expected])} of line {expected}; one process "
        "cannot use both",
        evidence=tuple(
            item
            for line in sorted(lines)
            for pair in lines[line]
            for item in declaration(*pair, pair[1].vendor)
        ),
        fix=line_fix(subject, present.name, present.version, expected),
    )


# BM110: a wheel alone unconditionally requires a distribution of another backend.
#
# If the required distribution is in the same lock or image, BM101 reports it.


def check_foreign_requirement(image: ImageSubject) -> Iterator[Finding]:
    """Yield a finding per vendor of the required distributions."""
    if not image.tree.is_single:
        return
    for item in image.inventory.distributions:
        required = [
            (name, match)
            for name, match in useless_requirements(image.tree, item)
            if name not in image.tree.installed
        ]
        for vendor in sorted({match.vendor for _, match in required if match.vendor is not None}):
            of_vendor = [(name, match) for name, match in required if match.vendor == vendor]
            yield finding(
                "BM110",
                image,
                f"{item.name} {item.version} requires {listing(name for name, _ in of_vendor)}, "
                f"which is for {image.catalogue.title(of_vendor[0][1].backend)} and not usable on "
                f"{image.backend}",
                vendor=vendor,
                owner=item.owner,
                path=item.path,
                chain=chain_to_file(image, item.owner, of_vendor[0][0]),
                fix=fix(image, item.name, item.version, "BM110"),
            )
