"""Versions of an image's runtimes and libraries, and the versions that distributions expect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct
from packaging.specifiers import SpecifierSet

from buildmatrix.base.parsing import parse_version, requirement_or_none, version_or_none
from buildmatrix.catalogue import drivers
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import distribution, library
from buildmatrix.catalogue.model import Evidence, demangle, matches_any, version_of
from buildmatrix.catalogue.releases import runtime_of_build
from buildmatrix.catalogue.tables import StatedVersion
from buildmatrix.facts.elf.model import DeviceCode, newer_version
from buildmatrix.facts.elf.symbols import exported_hashes
from buildmatrix.facts.inventory.conda import CONDA_PREFIX
from buildmatrix.facts.inventory.listing import distribution_name
from buildmatrix.facts.inventory.model import Binary, ClosedFile, Distribution
from buildmatrix.facts.loader import Needed
from buildmatrix.facts.loader_process import abi_of
from buildmatrix.judge.findings import split_owner
from buildmatrix.judge.subject import ImageSubject, once
from buildmatrix.matrix.kinds import Numbers, compare, numbers

# Versions of the backend's runtime in an image


class Runtime(Struct, frozen=True):
    """One runtime library, or a copy that is linked into a file."""

    #: `12.8`, or `12` if only the line is known; None if unknown.
    version: str | None
    evidence: Evidence
    #: `libcudart.so.12 of nvidia-cuda-runtime-cu12 12.8.90`
    name: str

    def about(self, backend: str, catalogue: Catalogue) -> str:
        """The same with its version, as messages begin."""
        return f"{self.name} is of {catalogue.title(backend)} {self.version}"


@once
def runtimes(image: ImageSubject) -> tuple[Runtime, ...]:
    """The runtimes of the target's backend, the newest first; those of no known version last.

    Packages of conda in a lock count by their names, as nothing else is known of them.
    """
    present = [
        Runtime(_runtime_version(image, item), item, _runtime_name(image, item))
        for item in image.evidence
        if item.kind in ("bundled", "static")
        and item.role == "runtime"
        and item.weight == "strong"
        and item.backend == image.backend
        and item.where != "host"
        and not item.path.endswith(".a")
    ]
    rows = drivers.select_entries(image.catalogue.runtime_versions, image.backend)
    for item in image.evidence:
        name, version = split_owner(item.distribution)
        if item.kind != "declared" or not name or not name.startswith(CONDA_PREFIX):
            continue
        if item.backend == image.backend and any(matches_any(r.distributions, name) for r in rows):
            stated = numbers((version or "").partition("+")[0])
            if stated is not None:
                least = ".".join(map(str, stated[:2]))
                present.append(Runtime(least, item, f"{name} {version}"))

    def rank(runtime: Runtime) -> tuple[tuple[int, ...], str]:
        version = numbers(runtime.version or "") or ()
        return (tuple(-number for number in version) or (1,), runtime.evidence.path)

    return tuple(sorted(present, key=rank))


@once
def stated_versions(image: ImageSubject, owner: str) -> Iterator[tuple[StatedVersion, str]]:
    """Yield the versions that a distribution's files say it was built with, by catalogue entry."""
    name, _ = split_owner(owner)
    rows = [
        row
        for row in drivers.select_entries(image.catalogue.stated_versions, image.backend)
        if name is not None and matches_any(row.distributions, name)
    ]
    for statements in image.inventory.statements if rows else ():
        if statements.owner != owner:
            continue
        for row in rows:
            texts = statements.values.get(row.name, ())
            if len(texts) == 1 and f"/{statements.path}".endswith(f"/{row.file}"):
                yield row, texts[0]


@once
def device_codes(image: ImageSubject) -> Mapping[str, tuple[DeviceCode, ...]]:
    """The device code of each file by its path."""
    return {
        **{binary.path: binary.elf.device_code for binary in image.inventory.binaries},
        **{artefact.path: artefact.device_code for artefact in image.inventory.artefacts},
    }


def _runtime_name(image: ImageSubject, item: Evidence) -> str:
    base = item.path.rpartition("/")[2]
    name, version = split_owner(item.distribution)
    holder = f"{name} {version}" if name else image.inventory.packaged.get(item.path, "the base")
    what = f"the runtime inside of {base}" if item.kind == "static" else base
    return f"{what} of {holder}"


def _runtime_version(image: ImageSubject, item: Evidence) -> str | None:
    """Return the best statement of a version, if it is of the line in the library's name."""
    for text in _find_versions(image, item):
        version = numbers(text.rpartition(":")[2])
        if version and (item.toolkit is None or str(version[0]) == item.toolkit):
            return ".".join(map(str, version[:2]))
    return item.toolkit


def _find_versions(image: ImageSubject, item: Evidence) -> Iterator[str]:
    catalogue = image.catalogue
    rows = drivers.select_entries(catalogue.runtime_versions, image.backend)
    base = demangle(item.path.rpartition("/")[2])
    name, version = split_owner(item.distribution)
    package, _, package_version = image.inventory.packaged.get(item.path, "").partition(" ")
    for row in rows:
        if item.kind == "bundled" and matches_any(row.libraries, base):
            yield version_of(base)
        if name and version and matches_any(row.distributions, name):
            yield version
        if package and matches_any(row.system_packages, package):
            yield package_version
        for pattern in row.paths:
            if (place := re.search(pattern, item.path)) is not None:
                yield place[1]
    if item.distribution is not None:
        yield from (
            text for row, text in stated_versions(image, item.distribution) if row.is_runtime
        )
    if name and version:
        match = distribution(name, version, catalogue)
        if match is not None and match.backend == image.backend:
            yield runtime_of_build(match.build) or ""
    codes = device_codes(image).get(item.path, ()) if item.kind == "static" else ()
    language = None
    for code in codes:
        language = newer_version(language, code.language)
    if language is not None:
        yield drivers.compiles("ptx", language, image.backend, catalogue) or ""
    if name and version and match is not None and match.backend == image.backend:
        yield match.toolkit or ""


# Versions that a distribution was built with and expects


_ROLES = ("runtime", "dnn", "comm", "math")


class ExpectedVersion(Struct, frozen=True):
    """The version of a library that a distribution was built with."""

    version: Numbers
    #: Source: a pin, the catalogue, or its local version.
    by: str


class LeastVersion(Struct, frozen=True):
    """Minimum version of a distribution that metadata requires."""

    version: str
    #: `==` for what it was built with; `>=` for what it runs with.
    operator: Literal["==", ">="]


def soname_globs(image: ImageSubject, name: str) -> tuple[str, ...]:
    """Globs of the SONAMEs that a distribution of this name has."""
    rows = drivers.select_entries(image.catalogue.library_distributions, image.backend)
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
    image: ImageSubject, installed: Distribution, soname: str, least_of: Mapping[str, LeastVersion]
) -> ExpectedVersion | None:
    """Return the expected version by its metadata, the catalogue, or the local version."""
    for binary in image.inventory.binaries:
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
    for row in drivers.select_entries(image.catalogue.framework_libraries, image.backend):
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
    made_for = numbers(runtime_of_build(match.build) or "") if match is not None else None
    if made_for is not None and len(made_for) > 1 and role_of(image, soname) == "runtime":
        return ExpectedVersion(made_for, f"its local version is +{local}")
    return None


# Versions that the loader finds, and older ones ahead of them


#: A library that was read, or one of a wheel of which only the list of files was: its name counts.
LibraryCopy = Binary | ClosedFile


class InFront(Struct, frozen=True):
    """An older library that the loader takes in place of the one that came with who links it."""

    #: The distribution that links it, and the entry.
    owner: str
    needed: Needed
    #: The loader's choice, and the distribution's own library.
    present: Binary
    own: Binary
    #: How it is known to be older.
    why: str


@once
def find_overtaking(image: ImageSubject) -> tuple[InFront, ...]:
    """Older libraries of the backend that the loader finds first, one for each owner and name."""
    binaries = {binary.path: binary for binary in image.inventory.loadable}
    brought: dict[str, list[Binary]] = {}
    for binary in binaries.values():
        if binary.owner is not None:
            for name in {binary.elf.soname, binary.path.rpartition("/")[2]} - {None}:
                brought.setdefault(name or "", []).append(binary)
    installed = {item.owner: item for item in image.inventory.distributions}
    result: dict[tuple[str, str], InFront] = {}
    for needed in image.resolution.needed:
        linking, present = binaries.get(needed.binary), binaries.get(needed.path or "")
        user = installed.get(linking.owner or "") if linking is not None else None
        if user is None or present is None:
            continue
        others = [item for item in brought.get(needed.name, ()) if abi_of(item) == abi_of(present)]
        if all(item is present for item in others) or not any(
            match.owned.backend == image.backend and match.owned.entry.where == "image"
            for match in library(needed.name, None, image.catalogue)
        ):
            continue
        # The distribution brings it itself, or requires what does.
        lines = map(requirement_or_none, user.requires)
        required = (distribution_name(line.name) for line in lines if line is not None)
        bringers = {user.name, *required}
        own = [item for item in others if split_owner(item.owner)[0] in bringers]
        if not own or split_owner(present.owner)[0] in bringers:
            continue
        whys = [_why_older(image, present, item) for item in own]
        if all(whys):
            found = InFront(user.owner, needed, present, own[0], whys[0] or "")
            result.setdefault((user.owner, needed.name), found)
    return tuple(result.values())


def _why_older(image: ImageSubject, present: Binary, own: Binary) -> str | None:
    """Describe why a library is older than another one: by versions, else by symbols."""
    version, expected = library_version(image, present), library_version(image, own)
    if version is not None and expected is not None:
        if not is_older(version, expected):
            return None
        return f"is {'.'.join(map(str, version))}"
    if present.elf.binding is None or own.elf.binding is None:
        return None
    ours, theirs = exported_hashes(present.elf.binding), exported_hashes(own.elf.binding)
    if not ours < theirs:
        return None
    return f"lacks {len(theirs - ours)} of its {len(theirs)} symbols"


def is_older(version: Numbers | None, expected: Numbers) -> bool:
    """Return True if a version is known, of the same line, and older than expected."""
    if version is None or version[0] != expected[0]:
        return False
    count = min(len(expected), len(version))
    return compare(version[:count], expected[:count]) < 0


def library_version(image: ImageSubject, binary: LibraryCopy) -> Numbers | None:
    """The version of a library by its owner, its package, or its name where that has several."""
    name, version = split_owner(binary.owner)
    if name is not None and version is not None:
        match = distribution(name, version, image.catalogue)
        # A framework that bundles a library has its own version.
        is_library = match is not None and match.kind == "native"
        return numbers(version) if is_library and "+" not in version else None
    _, _, package = image.inventory.packaged.get(binary.path, "").partition(" ")
    named = version_of(demangle(binary.path.rpartition("/")[2]))
    if named.count(".") > 1:
        return numbers(named)
    return numbers(package.rpartition(":")[2]) if package else None
