"""Requirements of a distribution, and releases of a family that have a build for a backend."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from msgspec import Struct
from packaging.markers import InvalidMarker, default_environment

from buildmatrix.base.parsing import holds, requirement_or_none
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import distribution
from buildmatrix.catalogue.model import BackendEntry, DistributionMatch
from buildmatrix.facts.inventory.listing import distribution_name
from buildmatrix.facts.inventory.model import Distribution

_NUMBER = re.compile(r"\d{1,9}")
_LOCAL = re.compile(r"[a-z]+\.?(\d{1,9})(?:\.(\d{1,9}))?")


def toolkit_line(runtime: str) -> str | None:
    """Return the toolkit line of a runtime: `12` for `12.8`, `2025` for `2025.0`, None for `any`.

    Within a line, libraries keep their sonames and run on newer minors (NVIDIA: "CUDA minor version
    compatibility"); across lines they do not.
    """
    match = _NUMBER.match(runtime)
    return match[0] if match else None


def runtime_of_build(local: str) -> str | None:
    """Return the runtime in a local version (PEP 440): `12.8` for `cu128`, `6.4` for `rocm6.4`.

    Without a dot the last digit is the minor, as the PyTorch project writes it. None if the local
    version has no such number (`cpu`, `xpu`).
    """
    match = _LOCAL.match(local)
    if match is None:
        return None
    major, minor = match[1], match[2]
    if minor is not None:
        return f"{major}.{minor}"
    return f"{major[:-1]}.{major[-1]}" if len(major) > 1 else major


_RELEASE = re.compile(r"(\d{1,9})\.(\d{1,9})")


class NearestRelease(Struct, frozen=True):
    """A release that has a build, and its place."""

    release: str
    #: Place, as uv names it: `rocm6.4`.
    route: str


class Gap(Struct, frozen=True):
    """A release without a build for a runtime of a backend."""

    release: str
    #: Builds of this release for other runtimes of the backend.
    others: tuple[str, ...]
    #: None where no release has one.
    nearest: NearestRelease | None


def gap(family: str, version: str, backend: str, runtime: str, catalogue: Catalogue) -> Gap | None:
    """Return the gap of `version`, of the distribution that `family` is named after.

    None if there is a build, or if that release is unknown. A build for an older minor of the same
    toolkit line counts: it runs on the newer one. `runtime` may be `any`.
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
        key=lambda version: (abs(_number(version) - wanted), -_number(version)),
        default=None,
    )
    nearest = NearestRelease(best, max(fitting[best], key=_minor)) if best is not None else None
    return Gap(release, builds.get(release, ()), nearest)


def routes_of(family: str, version: str, entry: BackendEntry) -> tuple[str, ...]:
    """Return the places that serve builds of the release of `version`, the newest last."""
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
    """Return True if a build from `route` runs in `runtime`: same line, and no newer minor."""
    made_for = runtime_of_build(route)
    if made_for is None or toolkit_line(runtime) is None:
        return True
    if toolkit_line(made_for) != toolkit_line(runtime):
        return False
    numbers = runtime.split(".")
    return len(numbers) < 2 or not numbers[1].isdigit() or _minor(route) <= int(numbers[1])


def _minor(route: str) -> int:
    made_for = (runtime_of_build(route) or "").partition(".")[2]
    return int(made_for) if made_for.isdigit() else 0


def _number(release: str) -> int:
    """Return a number that grows with the release, which has fewer than 1000 minors."""
    major, _, minor = release.partition(".")
    return 1000 * int(major) + int(minor)


# Requirements: `Requires-Dist` lines with environment markers (PEP 508) evaluated for the target
# and not for this machine. Extras of meta packages are followed: a requirement for
# `cuda-toolkit[cublas]` brings cuBLAS, one for `cuda-toolkit` brings nothing.


_PYTHON = re.compile(r"python(3\.\d+)/")
_LINUX = {
    "os_name": "posix",
    "platform_system": "Linux",
    "sys_platform": "linux",
    "platform_machine": "x86_64",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "extra": "",
}


class Required(Struct, frozen=True):
    """One requirement line of a distribution."""

    #: Normalized.
    name: str
    extras: tuple[str, ...]
    #: True if it is installed on the target without any extra.
    active: bool
    #: The catalogue's statement about `name`, in any version.
    match: DistributionMatch | None

    @property
    def brings(self) -> tuple[str, ...]:
        """Names of the installed packages, itself first; a meta package brings its extras'."""
        extras = self.match.extras if self.match is not None else None
        if extras is None:
            return (self.name,)
        return tuple(dict.fromkeys(name for extra in self.extras for name in extras.get(extra, ())))


def requirements(
    item: Distribution, catalogue: Catalogue, environment: Mapping[str, str] | None = None
) -> tuple[Required, ...]:
    """Return the requirements of `item`, in the order of its metadata.

    `environment` has the values of environment markers; default: Linux on x86-64. The interpreter
    is the one that `item` is installed for, if its path shows it. Invalid lines are skipped, as by
    installers.
    """
    values = _environment(item, environment or {})
    return tuple(_required(item.requires, values, catalogue))


def _required(
    lines: tuple[str, ...], environment: Mapping[str, str], catalogue: Catalogue
) -> Iterator[Required]:
    values = tuple(environment.items())
    for line in lines:
        requirement = requirement_or_none(line)
        if requirement is None:
            continue
        name = distribution_name(requirement.name)
        yield Required(
            name=name,
            extras=tuple(sorted(requirement.extras)),
            active=requirement.marker is None or _holds(line, values),
            match=distribution(name, "", catalogue),
        )


# The same wheels are judged for each backend, and again when more of them was read.
@lru_cache(maxsize=16384)
def _holds(line: str, environment: tuple[tuple[str, str], ...]) -> bool:
    requirement = requirement_or_none(line)
    marker = requirement.marker if requirement is not None else None
    try:
        return marker is None or holds(marker, dict(environment))
    # Installers refuse it; its requirement counts all the same.
    except InvalidMarker:
        return True


def _environment(item: Distribution, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the values of environment markers for the interpreter that `item` is installed for."""
    values = {key: str(value) for key, value in default_environment().items()}
    values.update(_LINUX)
    values.update(environment)
    python = _PYTHON.search(item.path)
    if python is not None:
        values["python_version"] = python[1]
        values["python_full_version"] = f"{python[1]}.0"
    return values
