"""Selection of a lock's content for one target: platform, markers, extras, groups and files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from packaging.markers import InvalidMarker, Marker
from packaging.specifiers import InvalidSpecifier
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name
from packaging.version import InvalidVersion, Version

from buildmatrix.base.data import replace
from buildmatrix.base.errors import Problem, SpecError, UndecidedError
from buildmatrix.base.parsing import holds as evaluate
from buildmatrix.base.parsing import parse_marker, parse_specifiers, parse_version, parse_wheel_name
from buildmatrix.locks.model import LeftOut, Package, Wheel
from buildmatrix.matrix.model import Target

# Platforms: uv's name, from a target's platform and base image


#: Platforms that locks support, and their machine names.
PLATFORMS = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}

#: Word in an image reference → minor version of that distribution's glibc 2.x. First match wins.
#: Source: the `libc6` or `glibc` package of each release, read 2026-11.
_GLIBC = (
    (r"ubuntu[-_:]?2[56]\.|trixie|debian[-_:]?13|questing|plucky", 41),
    (r"ubuntu[-_:]?24\.04|noble|fedora[-_:]?40|ubi10", 39),
    (r"bookworm|debian[-_:]?12", 36),
    (r"ubuntu[-_:]?22\.04|jammy", 35),
    (r"ubi9|rockylinux[-_:]?9|almalinux[-_:]?9", 34),
    (r"ubuntu[-_:]?20\.04|focal|bullseye|debian[-_:]?11", 31),
    (r"ubi8|rockylinux[-_:]?8|almalinux[-_:]?8", 28),
)
_GLIBC_UNKNOWN = 35
#: uv names no newer one; wheels for a later glibc are not published yet either.
_GLIBC_NEWEST = 40

#: Names of images with musl; `python:3.12-alpine3.22`.
_MUSL = re.compile(r"(?<![a-z])alpine")
#: The newest musl that uv resolves for, and that wheels are published for (PEP 656).
_MUSL_MINOR = 2

#: Patch release beyond all Pythons; the highest so far is 3.8.20.
_LATE_PATCH = "99"


def python_platform(target: Target) -> str:
    """Return uv's `--python-platform` for the final image of `target`, `x86_64-manylinux_2_35`.

    The C library is guessed from the name of the final base image: musl for Alpine. An unknown name
    counts as glibc 2.35 (Ubuntu 22.04), which every GPU vendor's current images have or exceed.
    Raises `UndecidedError` for a platform that uv cannot resolve for.
    """
    if target.platform not in PLATFORMS:
        platforms = " and ".join(PLATFORMS)
        raise UndecidedError(
            f"{target.id}: platform `{target.platform}` is not supported by locks; "
            f"supported platforms are {platforms}."
        )
    if has_musl(target):
        return f"{machine(target)}-unknown-linux-musl"
    return f"{machine(target)}-manylinux_2_{glibc_minor(target)}"


def machine(target: Target) -> str:
    """Return the machine name of wheels and markers for the target's platform; empty if unknown."""
    return PLATFORMS.get(target.platform, "")


def has_musl(target: Target) -> bool:
    """Return True if the target's C library is musl, guessed as for `python_platform`."""
    return _MUSL.search(target.base.final.lower()) is not None


def glibc_minor(target: Target) -> int:
    """Return the minor version of the target's glibc 2.x, guessed as for `python_platform`."""
    image = target.base.final.lower()
    minors = (minor for pattern, minor in _GLIBC if re.search(pattern, image))
    return min(next(minors, _GLIBC_UNKNOWN), _GLIBC_NEWEST)


def marker_environment(target: Target) -> dict[str, str]:
    """Return the environment markers (PEP 508) of `target` for requirement lines."""
    return {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": machine(target),
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{target.python}.0",
        "python_version": target.python,
        "sys_platform": "linux",
    }


def installed_environment(target: Target) -> dict[str, str]:
    """Return the markers of an installer in the target's image.

    A lock is resolved for the first patch of a Python, and installed with that of the base: the one
    in its tag, else a late one.
    """
    named = re.search(rf":{re.escape(target.python)}\.(\d+)\b", target.base.final)
    patch = named[1] if named else _LATE_PATCH
    return {**marker_environment(target), "python_full_version": f"{target.python}.{patch}"}


# Environment markers (PEP 508), extended as in locks. uv writes the choice between conflicting
# extras as further names of extras (`extra == 'extra-7-inferno-gpu'`, see
# `uv-resolver/src/universal_marker.rs`), several of which can hold at once; PEP 751 has `'gpu' in
# extras` and `'dev' in dependency_groups`.


_EXTRA = re.compile(
    r"""\bextra\s*(==|!=)\s*(?:'([^']*)'|"([^"]*)")|(?:'([^']*)'|"([^"]*)")\s*(==|!=)\s*extra\b"""
)
_MEMBER = re.compile(r"""(?:'([^']*)'|"([^"]*)")\s+(not\s+in|in)\s+(extras|dependency_groups)\b""")
#: Markers that always and never hold.
_TRUE, _FALSE = "python_version >= '0'", "python_version < '0'"
#: Poetry's marker that never holds: `EmptyMarker` in `poetry/core/version/markers.py`.
_EMPTY = "<empty>"
#: Far above any marker of a tool; a longer one counts as an attack on the parser.
_LONGEST = 100_000


class BrokenMarker(ValueError):
    """A text is not a valid marker; the message says why."""


def marker_holds(
    marker: str | None,
    environment: Mapping[str, str],
    extras: Collection[str] = (),
    groups: Collection[str] = (),
) -> bool:
    """Return True if a marker holds with `extras` and `groups` (normalized names).

    Raises `BrokenMarker`.
    """
    if not marker:
        return True
    if marker.strip() == _EMPTY:
        return False
    if len(marker) > _LONGEST:
        raise BrokenMarker("it is too long")

    named = _names(marker)
    return _decide(
        marker, tuple(environment.items()), named.intersection(extras), named.intersection(groups)
    )


@lru_cache(maxsize=4096)
def _names(marker: str) -> frozenset[str]:
    """Return the extras and groups that a marker names, normalized."""
    matches = (*_EXTRA.finditer(marker), *_MEMBER.finditer(marker))
    return frozenset(
        canonicalize_name(text) for match in matches for text in match.groups() if text
    )


# A walk over a lock asks for the same markers again and again; conflicts of uv make them long.
@lru_cache(maxsize=16384)
def _decide(
    marker: str,
    environment: tuple[tuple[str, str], ...],
    extras: frozenset[str],
    groups: frozenset[str],
) -> bool:
    def extra(match: re.Match[str]) -> str:
        name = canonicalize_name(match[2] or match[3] or match[4] or match[5] or "")
        return _TRUE if (name in extras) == ((match[1] or match[6]) == "==") else _FALSE

    def member(match: re.Match[str]) -> str:
        name = canonicalize_name(match[1] or match[2] or "")
        among = extras if match[4] == "extras" else groups
        return _TRUE if (name in among) == (match[3] == "in") else _FALSE

    try:
        parsed = _parse(_EXTRA.sub(extra, _MEMBER.sub(member, marker)))
        return evaluate(parsed, dict(environment))
    except InvalidMarker as error:
        raise BrokenMarker(str(error).splitlines()[0]) from error


@lru_cache(maxsize=4096)
def _parse(text: str) -> Marker:
    return parse_marker(text)


# Selection of one target, with its extras and groups


#: Grammar of names (https://packaging.python.org/en/latest/specifications/name-normalization/).
_NAME = re.compile(r"[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9._-]{0,200}[A-Za-z0-9]")


class LockSelection(Struct, frozen=True):
    """Selected parts of a lock."""

    path: Path
    #: Name of the file in messages and in `Package.place`.
    label: str
    target: Target
    #: Normalized names.
    extras: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    #: Default groups of the project that are not selected here.
    without: frozenset[str] = frozenset()
    #: False for groups alone, without the project's own requirements.
    has_main: bool = True
    #: False where the default groups of the project are not selected.
    has_defaults: bool = True

    @property
    def environment(self) -> Mapping[str, str]:
        """Markers of the target, as an installer of the lock evaluates them."""
        return installed_environment(self.target)

    def fits(self, marker: str | None, extras: Collection[str] = ()) -> bool:
        """Return True if a marker holds; raises `BrokenMarker`."""
        return marker_holds(marker, self.environment, extras, self.groups)

    def beside(self, name: str) -> tuple[Path, str]:
        """Return a file next to the lock, and its name in messages."""
        folder, slash, _ = self.label.rpartition("/")
        return self.path.parent / name, f"{folder}{slash}{name}"

    def check(self, extras: Collection[str], groups: Collection[str]) -> None:
        """Raise `SpecError` for requested extras or groups that the lock does not have."""
        problems = [
            Problem(
                f"there is no {kind} `{name}`",
                self.label,
                hint=f"{kind}s here: {', '.join(sorted(present)) or 'none'}",
            )
            for kind, requested, present in (
                ("extra", self.extras, extras),
                ("group", self.groups | self.without, groups),
            )
            for name in sorted(requested - {canonicalize_name(part) for part in present})
        ]
        if problems:
            raise SpecError(problems)

    def with_defaults(self, groups: Iterable[str]) -> LockSelection:
        """Return the selection with the groups that the project installs by default."""
        if not self.has_defaults:
            return self
        return replace(self, groups=self.groups | (frozenset(groups) - self.without))

    def left_out(
        self,
        extras: Iterable[str],
        groups: Iterable[str],
        conflicts: Iterable[Collection[str]] = (),
    ) -> LeftOut:
        """Return the extras and groups that are not selected.

        `conflicts` are sets of extras, and of groups with a `:` in front, that exclude one another.
        """
        together = {*self.extras, *(f":{name}" for name in self.groups)}
        parts: list[str] = sorted(set(map(canonicalize_name, extras)) - self.extras)
        parts += [f":{name}" for name in sorted(set(map(canonicalize_name, groups)) - self.groups)]
        for part in parts:
            if all(part not in conflict or together.isdisjoint(conflict) for conflict in conflicts):
                together.add(part)
        return LeftOut(
            extras=tuple(part for part in parts if not part.startswith(":")),
            groups=tuple(part[1:] for part in parts if part.startswith(":")),
            more_extras=tuple(sorted(part for part in together if not part.startswith(":"))),
            more_groups=tuple(sorted(part[1:] for part in together if part.startswith(":"))),
        )

    def check_python(self, requires_python: str, subject: str = "the lock") -> None:
        """Raise `SpecError` if a lock, or a part of it, is not for the target's Python."""
        target = self.target
        try:
            # Only the minor version counts: tools that ran on 3.12.3 write `>=3.12.3`.
            pythons = parse_specifiers(requires_python)
            reached = any(pythons.contains(f"{target.python}.{patch}") for patch in range(100))
        except InvalidSpecifier as error:
            problem = (
                f"{subject} is for Python {requires_python!r}, which is not a range of versions"
            )
            raise SpecError([Problem(problem, self.label)]) from error
        if not reached:
            problem = (
                f"{subject} is for Python {requires_python}, and {target.id} has {target.python}"
            )
            raise SpecError([Problem(problem, self.label)])

    def check_environment(self, markers: Collection[str], key: str, hint: str = "") -> None:
        """Raise `SpecError` if a lock is for other environments, `BrokenMarker` as `fits` does."""
        if markers and not any(self.fits(marker) for marker in markers):
            target = self.target
            problem = f"none of its `{key}` is {target.platform} with Python {target.python}"
            raise SpecError([Problem(problem, self.label, hint=hint or None)])

    def check_version(self, version: str, name: str, line: int | None) -> str:
        """Return the version of an entry in its normal form (PEP 440).

        Raises `SpecError` for an invalid version, and for an invalid name (PEP 508).
        """
        if not _NAME.fullmatch(name):
            problem = f"{name[:80]!r} is not a valid name of a distribution"
            raise SpecError([Problem(problem, self.label, line)])
        try:
            return str(parse_version(version)) if version else ""
        except InvalidVersion as error:
            problem = f"package `{name}`: `version` is {version!r}, and must be a version (PEP 440)"
            raise SpecError([Problem(problem, self.label, line)]) from error


# Files: the one that an installer takes on a target.
#
# Tags: https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/. Order as
# in pip and uv: the most specific tag wins, then the highest build number.


#: The oldest glibc of a `manylinux` tag, and meanings of the old names (PEP 600).
_OLDEST_GLIBC = {"x86_64": 5, "aarch64": 17}
_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
#: Tags per message.
_SHOWN = 3


def choose_wheel(package: Package, target: Target) -> Wheel | None:
    """Return the wheel that an installer takes on `target`; None if it builds, or cannot."""
    return best_wheel(package.wheels, target)


def best_wheel(wheels: Iterable[Wheel], target: Target) -> Wheel | None:
    """Return the wheel of one version that fits `target` best, if any fits."""
    ranks = _ranks_on(target)
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


def is_wheel_of(wheel: Wheel, package: Package) -> bool:
    """Return True if a wheel is of the distribution and version that a lock names it for.

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
    """Return why `choose_wheel` finds no wheel for `target`, in words; None if it finds one."""
    if choose_wheel(package, target) is not None:
        return None
    if package.unknown:
        return package.unknown
    if package.source:
        return f"it is built from {package.source}"
    libc = " and musl" if has_musl(target) else ""
    platform = f"{target.platform} with Python {target.python}{libc}"
    if package.source_only:
        # A resolver leaves out the wheels of other platforms: there may be some.
        return f"there is only its source distribution, and no wheel for {platform}"
    if not package.wheels:
        return "its lock has no file of it"
    return (
        f"it has no wheel for {platform}; the nearest is for {_format_tags(package.wheels, target)}"
    )


def nearest_build(
    requested: str, target: Target, files: Iterable[str], marks: Sequence[str]
) -> str | None:
    """Return the version nearest to `requested` with a wheel for the target and a mark.

    Args:
        requested: version, PEP 440; its local part is ignored.
        target: gives Python and platform.
        files: names of all files of the distribution on an index.
        marks: starts of local versions for the target's backend (`rocm6.4`, `rocm`), the best
            first. A wheel of a version without any mark is not a build for it.

    A better mark wins over a nearer version only at the same release: of the versions with any
    mark, the newest that is not newer than `requested` is the nearest, else the oldest newer one.
    """
    ranks = _ranks_on(target)
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
    nearest = (build for build in builds if _release(build[0]) == near)
    return str(min(nearest, key=lambda build: build[1:])[0])


def _release(version: Version) -> Version:
    return parse_version(version.public)


def _begins(local: str, mark: str) -> bool:
    """Return True if a local version has a mark: `rocm6.4.1` has `rocm6.4`, `rocm6.41` has not.

    A mark without digits matches all of its kind.
    """
    mark = mark.lower()
    if not any(character.isdigit() for character in mark):
        return local.rstrip("0123456789.") == mark
    return local == mark or local.startswith(f"{mark}.")


def _format_tags(wheels: Sequence[Wheel], target: Target) -> str:
    """Return tags of the wheels that miss the target, those of its machine first."""
    tags: dict[str, bool] = {}
    for wheel in wheels:
        stem = wheel.filename.removesuffix(".whl").split("-")
        tags["-".join(stem[-3:])] = machine(target) in stem[-1]
    order = sorted(tags, key=lambda tag: (not tags[tag], tag))
    more = f" and {len(order) - _SHOWN} more" if len(order) > _SHOWN else ""
    return ", ".join(order[:_SHOWN]) + more


def _ranks_on(target: Target) -> dict[Tag, int]:
    glibc = None if has_musl(target) else glibc_minor(target)
    return _ranks(target.python, machine(target), glibc)


@lru_cache(maxsize=64)
def _ranks(python: str, machine: str, glibc: int | None) -> dict[Tag, int]:
    """Return tag → its rank among all that fit, the most specific first."""
    major, _, minor = python.partition(".")
    version = (int(major), int(minor))
    platforms = list(_iter_platforms(machine, glibc))
    interpreter = f"cp{major}{minor}"
    tags = [
        *cpython_tags(version, platforms=platforms),
        *compatible_tags(version, interpreter=interpreter, platforms=platforms),
    ]
    ranks: dict[Tag, int] = {}
    for tag in tags:
        ranks.setdefault(tag, len(ranks))
    return ranks


def _iter_platforms(machine: str, glibc: int | None) -> Iterator[str]:
    """Yield platform tags, the most specific first; without a glibc those of musl."""
    if glibc is None:
        yield from (f"musllinux_1_{minor}_{machine}" for minor in range(_MUSL_MINOR, -1, -1))
        yield f"linux_{machine}"
        return
    for minor in range(glibc, _OLDEST_GLIBC.get(machine, 17) - 1, -1):
        yield f"manylinux_2_{minor}_{machine}"
        if minor in _OLD_NAMES:
            yield f"{_OLD_NAMES[minor]}_{machine}"
    yield f"linux_{machine}"
