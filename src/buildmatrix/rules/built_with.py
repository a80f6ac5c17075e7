"""Versions of the libraries that a distribution was built with and expects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from packaging.specifiers import SpecifierSet

from buildmatrix.catalogue import drivers
from buildmatrix.catalogue.lookup import distribution, library
from buildmatrix.catalogue.names import matches_any
from buildmatrix.catalogue.runtimes import built_for
from buildmatrix.inventory.model import Binary, Distribution
from buildmatrix.inventory.names import distribution_name
from buildmatrix.parsing import parse_version, requirement_or_none, version_or_none
from buildmatrix.rules.findings import split_owner
from buildmatrix.rules.runtime_versions import stated_versions
from buildmatrix.rules.subject import ImageSubject
from buildmatrix.spec.version_range import Numbers, numbers

_ROLES = ("runtime", "dnn", "comm", "math")


@dataclass(frozen=True, slots=True)
class ExpectedVersion:
    """The version of a library that a distribution was built with."""

    version: Numbers
    #: Who says so: a pin, the catalogue, or its local version.
    by: str


@dataclass(frozen=True, slots=True)
class LeastVersion:
    """Minimum version of a distribution that metadata requires."""

    version: str
    #: `==` for what it was built with; `>=` for what it runs with.
    operator: Literal["==", ">="]


def soname_globs(image: ImageSubject, name: str) -> tuple[str, ...]:
    """Globs of the SONAMEs that a distribution of this name has."""
    rows = drivers.of_backend(image.catalogue.library_distributions, image.backend)
    return tuple(
        glob for row in rows if matches_any(row.distributions, name) for glob in row.libraries
    )


def role_of(image: ImageSubject, name: str) -> str | None:
    """Return the role of the library `name` in the image's backend; None without a role."""
    for match in library(name, None, image.catalogue):
        entry = match.owned.entry
        if match.owned.backend == image.backend and entry.role in _ROLES and entry.where == "image":
            return entry.role
    return None


def least_versions(installed: Distribution) -> Mapping[str, LeastVersion]:
    """Return the distributions of which its metadata requires one version, or a minimum.

    Extras count, whether they were asked for or not: they say what it works with. Of several lines
    about one distribution (for a Python, for a platform) the one that asks for least counts.
    """
    versions: dict[str, LeastVersion] = {}
    for line in installed.requires:
        requirement = requirement_or_none(line)
        if requirement is None:
            continue
        name = distribution_name(requirement.name)
        least = _least(requirement.specifier)
        before = versions.get(name)
        if least is not None and (
            before is None or parse_version(least.version) < parse_version(before.version)
        ):
            versions[name] = least
    return versions


def _least(specifier: SpecifierSet) -> LeastVersion | None:
    exact = [item.version for item in specifier if item.operator in ("==", "===")]
    if len(exact) == 1 and not exact[0].endswith("*"):
        return LeastVersion(exact[0], "==") if version_or_none(exact[0]) else None
    floors = [
        item.version
        for item in specifier
        if item.operator in (">=", "~=") and version_or_none(item.version)
    ]
    return LeastVersion(max(floors, key=parse_version), ">=") if floors else None


def needed_version(least: LeastVersion) -> Numbers | None:
    """Return the version that another copy of the library must have; a pin names a release.

    torch, jax and tensorflow compare the first two numbers of cuDNN.
    """
    version = numbers(least.version)
    return version[:2] if version is not None and least.operator == "==" else version


def metadata_words(name: str, least: LeastVersion) -> str:
    """Describe the source of the expected version for findings."""
    return f"its metadata asks for {name}{least.operator}{least.version}"


def expected_version(
    image: ImageSubject,
    installed: Distribution,
    soname: str,
    least_of: Mapping[str, LeastVersion],
    binaries: Mapping[str, Binary],
) -> ExpectedVersion | None:
    """Return the expected version by its metadata, the catalogue, or the local version."""
    for binary in binaries.values():
        name, _ = split_owner(binary.owner)
        if (
            name is not None
            and name in least_of
            and soname in (binary.elf.soname, binary.path.rpartition("/")[2])
        ):
            version = numbers(least_of[name].version)
            if version is not None:
                return ExpectedVersion(version, metadata_words(name, least_of[name]))
    for name, least in sorted(least_of.items()):
        version = needed_version(least)
        if version is not None and matches_any(soname_globs(image, name), soname):
            return ExpectedVersion(version, metadata_words(name, least))
    for stated, text in stated_versions(image, installed.owner):
        version = numbers(text)
        if version is not None and matches_any(stated.libraries, soname):
            return ExpectedVersion(version, f"{stated.file} says {stated.name} {text}")
    local = installed.version.partition("+")[2]
    release = ".".join(map(str, (numbers(installed.version) or ())[:2]))
    for row in drivers.of_backend(image.catalogue.framework_libraries, image.backend):
        if (
            row.distribution == installed.name
            and release in row.releases
            and matches_any(row.builds, local)
            and soname in row.libraries
        ):
            version = numbers(row.libraries[soname])
            if version is not None:
                return ExpectedVersion(version, f"as {installed.name} {release} for {local} was")
    match = distribution(installed.name, installed.version, image.catalogue) if local else None
    made_for = numbers(built_for(match.build) or "") if match is not None else None
    if made_for is not None and len(made_for) > 1 and role_of(image, soname) == "runtime":
        return ExpectedVersion(made_for, f"its local version is +{local}")
    return None
