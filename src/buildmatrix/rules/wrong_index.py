"""BM108: a build comes from another index than the target's index for its family.

What a foreign local version or the default build says is BM102's and BM104's to say.
"""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue.model import DistributionMatch
from buildmatrix.catalogue.runtimes import built_for
from buildmatrix.locks.plan import index_of
from buildmatrix.rules import default_build, foreign_local_version
from buildmatrix.rules.declared import declaration, finding_about, sized
from buildmatrix.rules.model import Finding, Fix
from buildmatrix.rules.subject import Present, Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Members of a routed family that did not take the route."""
    reported = {
        item.distribution
        for rule in (foreign_local_version.check, default_build.check)
        for item in rule(subject)
    }
    for present, match in subject.matches:
        if present.name in reported:
            continue
        strayed = _off_the_index(present, subject) or _off_the_route(present, match, subject)
        if strayed is None:
            continue
        wanted, instead = strayed
        yield finding_about(
            "BM108",
            subject,
            present,
            f"{sized(present)} {instead}, and this target takes its family from {wanted}",
            vendor=match.vendor,
            evidence=declaration(present, match, match.vendor) if match.vendor else (),
            fix=Fix(
                "index",
                f"lock again with `buildmatrix lock`; where nothing changes, name {present.name} "
                "in a requirement file, so that the route covers it",
            ),
        )


def _off_the_index(present: Present, subject: Subject) -> tuple[str, str] | None:
    """Return the specified index, and the other source of a distribution."""
    wanted = index_of(present.name, subject.target)
    if wanted is None or present.index is None:
        return None
    if present.index.rstrip("/") == wanted.rstrip("/"):
        return None
    return wanted, f"comes from {present.index}"


def _off_the_route(
    present: Present, match: DistributionMatch, subject: Subject
) -> tuple[str, str] | None:
    """Another build than that of uv's torch route, as the local version or the index says."""
    route = subject.target.torch
    own = subject.catalogue.backends.get(subject.backend)
    routes = {index.name for index in own.indexes} if own is not None else set()
    if route is None or route not in routes or match.backend != subject.backend:
        return None
    local = present.version.partition("+")[2]
    if built_for(match.build) is not None and match.kind == "native" and "+" in match.entry:
        return None if match.build == route else (route, f"was built for {match.build}")
    if not match.is_routed:
        return None
    place = (present.index or "").rstrip("/").rpartition("/")[2]
    if local or not place or place == route:
        return None
    return route, f"comes from {present.index}"
