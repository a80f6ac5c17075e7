"""`Requires-Dist` lines (PEP 508): their markers and extras, and requirements between packages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache

from msgspec import Struct

from buildmatrix.base.data import replace
from buildmatrix.base.parsing import requirement_or_none
from buildmatrix.facts.inventory.listing import distribution_name
from buildmatrix.facts.inventory.model import Distribution
from buildmatrix.locks.lines import allows
from buildmatrix.locks.model import Lock

#: Start of a `Requires-Dist` line: most name absent distributions, and need not be parsed.
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
#: A line without a marker; its specifiers do not matter here.
_PLAIN = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?\s*(?:[(<>=!~][^;@]*)?")
#: Maximum depth of extras that bring extras; real ones nest two or three deep.
_ROUNDS = 20
#: Distributions that Poetry, pipenv and pip-compile leave to the environment.
_LEFT_TO_ENVIRONMENT = frozenset({"distribute", "pip", "setuptools", "wheel"})


class Requires(Struct, frozen=True):
    """One `Requires-Dist` line that names a present distribution."""

    name: str
    extras: frozenset[str]
    line: str
    marker: str
    #: Extra of the requiring distribution that activates it; None for always.
    extra: str | None


def requirements(
    lines: Iterable[str], present: Collection[str] | None, environment: Mapping[str, str]
) -> Iterator[Requires]:
    """Yield the lines whose markers hold, for one extra or none.

    If `present` is given, only lines that name one of its distributions.
    """
    values = tuple(environment.items())
    for line in dict.fromkeys(lines):
        if line.startswith("npm:"):
            if present is None or line in present:
                yield Requires(line, frozenset(), line, "", None)
            continue
        start = _NAME.match(line)
        if start is not None and (present is None or distribution_name(start[1]) in present):
            yield from _read_line(line, values)


# Several rules need the same lines, for each backend.
@lru_cache(maxsize=16384)
def _read_line(line: str, environment: tuple[tuple[str, str], ...]) -> tuple[Requires, ...]:
    return tuple(_holding(line, dict(environment)))


def _holding(line: str, environment: Mapping[str, str]) -> Iterator[Requires]:
    from packaging.markers import InvalidMarker

    from buildmatrix.base.parsing import holds

    if plain := _PLAIN.fullmatch(line):
        extras = (part.strip() for part in (plain[2] or "").split(","))
        extras_of = frozenset(map(distribution_name, filter(None, extras)))
        yield Requires(distribution_name(plain[1]), extras_of, line, "", None)
        return
    requirement = requirement_or_none(line)
    if requirement is None:
        return  # As installers do.
    name, marker = distribution_name(requirement.name), requirement.marker
    extra_names = frozenset(map(distribution_name, requirement.extras))
    if marker is None:
        yield Requires(name, extra_names, line, "", None)
        return
    text = str(marker)
    named = set(re.findall(r"extra\s*==\s*[\"']([^\"']+)[\"']", text))
    try:
        if holds(marker, {**environment, "extra": ""}):
            yield Requires(name, extra_names, line, text, None)
            return
        for extra in sorted(named):
            if holds(marker, {**environment, "extra": extra}):
                yield Requires(name, extra_names, line, text, distribution_name(extra))
    except InvalidMarker:
        yield Requires(name, extra_names, line, text, None)


def requested_extras(
    requires: Mapping[str, tuple[Requires, ...]],
    askers_of: Mapping[str, list[str]],
    lines: Mapping[str, str],
) -> dict[str, set[str]]:
    """The extras of each distribution that a line or another distribution requests."""
    extras: dict[str, set[str]] = {}
    for name, askers in askers_of.items():
        for line in askers:
            if match := re.match(r"\s*[A-Za-z0-9._-]+\s*\[([^\]]*)\]", lines.get(line, "")):
                names = (distribution_name(part.strip()) for part in match[1].split(","))
                extras.setdefault(name, set()).update(names)
    for _ in range(_ROUNDS):
        before = sum(map(len, extras.values()))
        for name, needs in requires.items():
            for need in needs:
                if need.extra is None or need.extra in extras.get(name, ()):
                    extras.setdefault(need.name, set()).update(need.extras)
        if sum(map(len, extras.values())) == before:
            break
    return extras


def metadata_of(distributions: Iterable[Distribution]) -> dict[str, tuple[str, ...]]:
    """Return name → `Requires-Dist` lines; two distributions of one name have those of both."""
    lines: dict[str, tuple[str, ...]] = {}
    for distribution in distributions:
        lines[distribution.name] = (*lines.get(distribution.name, ()), *distribution.requires)
    return lines


def _metadata(lock: Lock, distributions: Iterable[Distribution]) -> dict[str, tuple[str, ...]]:
    """Return name of a package → `Requires-Dist` lines, of its wheel or its source distribution.

    Metadata of distributions bundled inside a wheel do not count.
    """
    outer = (distribution for distribution in distributions if "/" not in distribution.path)
    metadata = metadata_of(outer)
    names = {package.name for package in lock.packages}
    return {
        **{item.name: item.requires for item in lock.packages if item.requires is not None},
        **{name: lines for name, lines in metadata.items() if name in names},
    }


def find_missing(
    lock: Lock, distributions: Iterable[Distribution], environment: Mapping[str, str]
) -> Mapping[str, tuple[str, ...]]:
    """Return package → unconditional requirements that the lock lacks."""
    names = {package.name for package in lock.packages}
    missing: dict[str, tuple[str, ...]] = {}
    for name, lines in sorted(_metadata(lock, distributions).items()):
        required = {
            requires.name
            for requires in requirements(lines, None, environment)
            if requires.extra is None and requires.name not in names
        }
        if required:
            missing[name] = tuple(sorted(required))
    return missing


def find_unmet(
    lock: Lock, distributions: Iterable[Distribution], environment: Mapping[str, str]
) -> Iterator[tuple[str, Requires]]:
    """Yield name of a package, and a requirement of it that the lock does not meet.

    Unconditional requirements count, and those of requested extras. A lock that an installer
    completes only has to meet those that name something in it.
    """
    versions: dict[str, list[str]] = {}
    for package in lock.packages:
        versions.setdefault(package.name, []).append(package.version)
    metadata = {
        name: lines
        for name, lines in _metadata(lock, distributions).items()
        if name not in lock.decided
    }
    extras: dict[str, set[str]] = {}
    requires: dict[str, tuple[Requires, ...]] = {}
    for _ in range(_ROUNDS):
        requires = {
            name: tuple(
                requirements(
                    lines if extras.get(name) else _without_extras(lines), None, environment
                )
            )
            for name, lines in metadata.items()
        }
        before, extras = extras, requested_extras(requires, {}, {})
        if extras == before:
            break
    silent = lock.decided | _LEFT_TO_ENVIRONMENT
    for name, needs in sorted(requires.items()):
        for need in needs:
            if need.extra is not None and need.extra not in extras.get(name, ()):
                continue
            if need.name in versions:
                if need.name not in lock.decided and not _allows(need.line, versions[need.name]):
                    yield name, need
            elif need.name not in silent and not lock.is_completed:
                yield name, need


def _without_extras(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines that may hold without an extra; lines of extras are the most."""
    for line in lines:
        marker = line.partition(";")[2]
        if "extra" not in marker or " or " in marker:
            yield line


def _allows(line: str, versions: Iterable[str]) -> bool:
    """Return True if a requirement line allows one of `versions`, or is not readable."""
    requirement = requirement_or_none(line)
    return requirement is None or any(allows(requirement, version) for version in versions)


def add_askers(
    lock: Lock, distributions: Iterable[Distribution], environment: Mapping[str, str]
) -> Lock:
    """Return the lock with missing askers of packages added, from wheel metadata.

    `Pipfile.lock` has no such edges at all, nor have most of the tools that write a `pylock.toml`.
    `environment` has the values of markers. Packages without askers stay unchanged.
    """
    silent = {package.name for package in lock.packages if not package.via}
    if not silent:
        return lock
    names = {package.name for package in lock.packages}
    requires = {
        name: tuple(requirements(lines, names, environment))
        for name, lines in _metadata(lock, distributions).items()
    }
    extras = requested_extras(requires, {}, {})
    certain: dict[str, set[str]] = {}
    possible: dict[str, set[str]] = {}
    for name, needs in requires.items():
        for need in needs:
            if need.name in silent and need.name != name:
                active = need.extra is None or need.extra in extras.get(name, ())
                (certain if active else possible).setdefault(need.name, set()).add(name)
    return replace(
        lock,
        packages=tuple(
            package
            if package.name not in silent
            else replace(
                package,
                via=tuple(sorted(certain.get(package.name) or possible.get(package.name) or ())),
            )
            for package in lock.packages
        ),
    )
