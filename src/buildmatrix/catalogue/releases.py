"""Which releases of a family have a build for a backend, and which is the nearest that has one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.model import BackendEntry
from buildmatrix.catalogue.runtimes import built_for, toolkit_line

_RELEASE = re.compile(r"(\d{1,9})\.(\d{1,9})")


@dataclass(frozen=True, slots=True)
class NearestRelease:
    """A release that has a build, and where that is."""

    release: str
    #: uv's name of the place, `rocm6.4`.
    route: str


@dataclass(frozen=True, slots=True)
class Gap:
    """A release without a build for a runtime of a backend."""

    release: str
    #: Builds of this release for other runtimes of the backend.
    others: tuple[str, ...]
    #: None where no release has one.
    nearest: NearestRelease | None


def gap(family: str, version: str, backend: str, runtime: str, catalogue: Catalogue) -> Gap | None:
    """What is missing for `version` of the distribution that `family` is named after.

    None where there is a build, and where nothing is known of that release. A build for an older
    minor of the same toolkit line counts: it runs on the newer one. `runtime` may be `any`.
    """
    match = _RELEASE.match(version)
    if match is None:
        return None
    release = match[0]
    if not any(
        (item.family, item.version) == (family, release)
        for entry in catalogue.backends.values()
        for item in entry.releases
    ):
        return None
    entry = catalogue.backends.get(backend)
    if entry is None or not entry.releases:
        return None
    builds = {item.version: item.routes for item in entry.releases if item.family == family}
    fitting = {
        version: routes
        for version, every in builds.items()
        if (routes := tuple(route for route in every if _fits(route, runtime)))
    }
    if release in fitting:
        return None
    wanted = _number(release)
    best = min(
        fitting,
        # Of two that are equally far, the newer one: projects move forward.
        key=lambda version: (
            _distance(_number(version), wanted),
            -_number(version)[0],
            -_number(version)[1],
        ),
        default=None,
    )
    nearest = NearestRelease(best, max(fitting[best], key=_minor)) if best is not None else None
    return Gap(release, builds.get(release, ()), nearest)


def routes_of(family: str, version: str, entry: BackendEntry) -> tuple[str, ...]:
    """Where builds of the release that `version` belongs to are served, the newest last."""
    match = _RELEASE.match(version)
    return next(
        (
            release.routes
            for release in entry.releases
            if match is not None and (release.family, release.version) == (family, match[0])
        ),
        (),
    )


def _fits(route: str, runtime: str) -> bool:
    """Whether a build from `route` runs in `runtime`: same line, and no newer minor."""
    made_for = built_for(route)
    if made_for is None or toolkit_line(runtime) is None:
        return True
    if toolkit_line(made_for) != toolkit_line(runtime):
        return False
    numbers = runtime.split(".")
    return len(numbers) < 2 or not numbers[1].isdigit() or _minor(route) <= int(numbers[1])


def _minor(route: str) -> int:
    made_for = (built_for(route) or "").partition(".")[2]
    return int(made_for) if made_for.isdigit() else 0


def _number(release: str) -> tuple[int, int]:
    major, _, minor = release.partition(".")
    return int(major), int(minor)


def _distance(first: tuple[int, int], second: tuple[int, int]) -> int:
    return abs(first[0] - second[0]) * 1000 + abs(first[1] - second[1])
