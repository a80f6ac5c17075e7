"""Which file of a locked package an installer takes on a target.

Tags: https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/. Order as
pip's and uv's: the most specific tag wins, then the highest build number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name
from packaging.version import InvalidVersion, Version

from buildmatrix.locks.model import Package, Wheel
from buildmatrix.locks.platform import glibc_minor, machine
from buildmatrix.parsing import parse_version, parse_wheel_name
from buildmatrix.spec.model import Target

#: The oldest glibc of a `manylinux` tag, and what the old names mean (PEP 600).
_OLDEST_GLIBC = {"x86_64": 5, "aarch64": 17}
_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
#: Tags that a message names.
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class NearestWheel:
    """The version of a distribution nearest to a requested one that has a build for a target."""

    version: str
    filename: str


def choose(package: Package, target: Target) -> Wheel | None:
    """The wheel that an installer takes on `target`; None where it has to build, or cannot."""
    return best(package.wheels, target)


def best(wheels: Iterable[Wheel], target: Target) -> Wheel | None:
    """The wheel among `wheels` of one version that fits `target` best; None where none fits."""
    ranks = _ranks(target.python, machine(target), glibc_minor(target))
    chosen: tuple[tuple[int, tuple[int, str] | tuple[()]], Wheel] | None = None
    for wheel in wheels:
        try:
            _, _, build, tags = parse_wheel_name(wheel.filename)
        except (InvalidWheelFilename, InvalidVersion):
            continue
        rank = min((ranks[tag] for tag in tags if tag in ranks), default=None)
        if rank is None:
            continue
        key = (-rank, build)
        if chosen is None or key > chosen[0]:
            chosen = key, wheel
    return chosen[1] if chosen else None


def is_of(wheel: Wheel, package: Package) -> bool:
    """Whether a file is one of the distribution that a lock names it for, by its name.

    A pin without a local version (`2.9.0`) allows a build with one (`2.9.0+cpu`).
    """
    try:
        name, version, _, _ = parse_wheel_name(wheel.filename)
        pinned = parse_version(package.version) if package.version else version
    except (InvalidWheelFilename, InvalidVersion):
        return False
    if name != canonicalize_name(package.name):
        return False
    return version == pinned or (pinned.local is None and parse_version(version.public) == pinned)


def refusal(package: Package, target: Target) -> str | None:
    """Why `choose` finds nothing for `target`, in words; None where it finds a wheel."""
    if choose(package, target) is not None:
        return None
    if package.unknown:
        return package.unknown
    if package.source:
        return f"it is built from {package.source}"
    platform = f"{target.platform} with Python {target.python}"
    if package.source_only:
        # A resolver leaves out the wheels of other platforms: there may be some.
        return f"there is only its source code, and no wheel for {platform}"
    if not package.wheels:
        return "its lock names no file of it"
    return f"it has no wheel for {platform}; the nearest is for {_shown(package.wheels, target)}"


def nearest_build(
    requested: str, target: Target, files: Iterable[str], marks: Sequence[str]
) -> NearestWheel | None:
    """The version nearest to `requested` that has a wheel for the target's platform and a mark.

    Args:
        requested: version that was asked for, PEP 440; its local part is not looked at.
        target: gives Python and platform.
        files: names of all files of the distribution on an index.
        marks: starts of local versions that mean the target's backend (`rocm6.4`, `rocm`),
            the best first. A wheel of a version without any mark is not a build for it.

    A better mark wins over a nearer version only at the same release: of the versions with any
    mark, the newest that is not newer than `requested` is the nearest, else the oldest newer one.
    """
    ranks = _ranks(target.python, machine(target), glibc_minor(target))
    builds: list[tuple[Version, int, str]] = []
    for name in files:
        try:
            _, version, _, tags = parse_wheel_name(name)
        except (InvalidWheelFilename, InvalidVersion):
            continue
        local = version.local or ""
        mark = next((n for n, mark in enumerate(marks) if _begins(local, mark)), None)
        if mark is not None and any(tag in ranks for tag in tags):
            builds.append((version, mark, name))
    if not builds:
        return None
    limit = _release(parse_version(requested))
    older = [build for build in builds if _release(build[0]) <= limit]
    near = (
        max(_release(v) for v, _, _ in older) if older else min(_release(v) for v, _, _ in builds)
    )
    version, _, name = min(
        (build for build in builds if _release(build[0]) == near),
        key=lambda build: (build[1], build[2]),
    )
    return NearestWheel(str(version), name)


def _release(version: Version) -> Version:
    return parse_version(version.public)


def _begins(local: str, mark: str) -> bool:
    """Whether a local version is one of `mark`: `rocm6.4.1` is one of `rocm6.4`, `rocm6.41` not.

    A mark without digits means all of its kind.
    """
    mark = mark.lower()
    if not any(character.isdigit() for character in mark):
        return local.rstrip("0123456789.") == mark
    return local == mark or local.startswith(f"{mark}.")


def _shown(wheels: Sequence[Wheel], target: Target) -> str:
    """Tags of the wheels that miss the target, those of its machine first."""
    tags: dict[str, bool] = {}
    for wheel in wheels:
        stem = wheel.filename.removesuffix(".whl").split("-")
        tags["-".join(stem[-3:])] = machine(target) in stem[-1]
    order = sorted(tags, key=lambda tag: (not tags[tag], tag))
    more = f" and {len(order) - _SHOWN} more" if len(order) > _SHOWN else ""
    return ", ".join(order[:_SHOWN]) + more


@lru_cache(maxsize=64)
def _ranks(python: str, machine: str, glibc: int) -> dict[Tag, int]:
    """Tag → its place among all that fit, the most specific first."""
    major, _, minor = python.partition(".")
    version = (int(major), int(minor))
    platforms = list(_platforms(machine, glibc))
    interpreter = f"cp{major}{minor}"
    tags = [
        *cpython_tags(version, platforms=platforms),
        *compatible_tags(version, interpreter=interpreter, platforms=platforms),
    ]
    ranks: dict[Tag, int] = {}
    for tag in tags:
        ranks.setdefault(tag, len(ranks))
    return ranks


def _platforms(machine: str, glibc: int) -> Iterator[str]:
    for minor in range(glibc, _OLDEST_GLIBC.get(machine, 17) - 1, -1):
        yield f"manylinux_2_{minor}_{machine}"
        if minor in _OLD_NAMES:
            yield f"{_OLD_NAMES[minor]}_{machine}"
    yield f"linux_{machine}"
