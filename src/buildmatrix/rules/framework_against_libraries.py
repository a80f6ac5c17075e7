"""BM706: a distribution finds another version of a library than it was built with.

What it was built with is what its metadata pins, else what the catalogue knows of its release; what
it finds is where the loader leads its NEEDED entries. Libraries of another line are the business of
BM302 and BM303, as far as those see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement

from buildmatrix.catalogue import drivers
from buildmatrix.catalogue.lookup import distribution, library
from buildmatrix.catalogue.names import demangle, matches_any, version_of
from buildmatrix.catalogue.runtimes import built_for
from buildmatrix.inventory.model import Binary, Distribution
from buildmatrix.inventory.names import distribution_name
from buildmatrix.loader.resolution import Needed
from buildmatrix.parsing import parse_requirement
from buildmatrix.rules.findings import chain_to_file, finding, split_owner
from buildmatrix.rules.model import Finding, Fix, Severity
from buildmatrix.rules.subject import ImageSubject
from buildmatrix.spec.version_range import Numbers, compare, numbers

#: Roles of libraries that refuse a framework which was built with a newer one, or lack what it
#: calls: cuDNN compares versions when it is loaded.
_STRICT = ("dnn",)
_ROLES = ("runtime", "dnn", "comm", "math")


@dataclass(frozen=True, slots=True)
class _Expected:
    """The version of a library that a distribution was built with."""

    version: Numbers
    #: Who says so: a pin, the catalogue, or its local version.
    by: str


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per distribution and library that is found too old, or of another line."""
    binaries = {binary.path: binary for binary in image.inventory.binaries}
    needed: dict[str, list[Needed]] = {}
    for item in image.resolution.needed:
        binary = binaries.get(item.binary)
        if binary is not None and binary.owner is not None and item.path is not None:
            needed.setdefault(binary.owner, []).append(item)
    for installed in image.inventory.distributions:
        owner = f"{installed.name}=={installed.version}"
        match = distribution(installed.name, installed.version, image.catalogue)
        if match is None or match.backend != image.backend or owner not in needed:
            continue
        yield from _judged(image, installed, owner, needed[owner], binaries)


def _judged(
    image: ImageSubject,
    installed: Distribution,
    owner: str,
    needed: list[Needed],
    binaries: Mapping[str, Binary],
) -> Iterator[Finding]:
    pins = _pins(installed)
    seen: set[str] = set()
    for item in sorted(needed, key=lambda item: (item.name, item.binary)):
        if item.name in seen or item.path is None:
            continue
        role = _role(image, item.name)
        present = binaries.get(item.path)
        if role is None or present is None or present.owner == owner:
            continue
        seen.add(item.name)
        expected = _expected(image, installed, item.name, pins, binaries)
        version = _version(image, present)
        if expected is None or version is None:
            continue
        count = min(len(expected.version), len(version))
        if compare(version[:count], expected.version[:count]) >= 0:
            continue
        yield _finding(image, owner, item, present, role, expected, version)


def _finding(
    image: ImageSubject,
    owner: str,
    item: Needed,
    present: Binary,
    role: str,
    expected: _Expected,
    version: Numbers,
) -> Finding:
    name, number = split_owner(owner)
    wanted, has = ".".join(map(str, expected.version)), ".".join(map(str, version))
    severity: Severity = "error" if role in _STRICT else "warning"
    holder = present.owner or image.inventory.packaged.get(present.path) or "the base"
    return finding(
        "BM706",
        image,
        f"{name} {number} was built with {item.name} {wanted} ({expected.by}), and the loader "
        f"leads it to {present.path} of {holder.replace('==', ' ')}, which is {has}: an older one "
        "lacks what it may call",
        severity=severity,
        vendor=image.catalogue.vendor_of(image.backend),
        owner=owner,
        path=item.binary,
        chain=chain_to_file(image, owner, item.binary, item.name, present.path),
        fix=Fix(
            "pin",
            f"take the older library out of the way, or bring {item.name} to {wanted} or later "
            "there",
        ),
    )


def _role(image: ImageSubject, name: str) -> str | None:
    for match in library(name, None, image.catalogue):
        entry = match.owned.entry
        if match.owned.backend == image.backend and entry.role in _ROLES and entry.where == "image":
            return entry.role
    return None


def _pins(installed: Distribution) -> Mapping[str, str]:
    """Distributions that its metadata asks for in one exact version."""
    pins: dict[str, str] = {}
    for line in installed.requires:
        try:
            requirement = parse_requirement(line)
        except InvalidRequirement:
            continue
        exact = [item.version for item in requirement.specifier if item.operator in ("==", "===")]
        if len(exact) == 1 and not exact[0].endswith("*"):
            pins[distribution_name(requirement.name)] = exact[0]
    return pins


def _expected(
    image: ImageSubject,
    installed: Distribution,
    soname: str,
    pins: Mapping[str, str],
    binaries: Mapping[str, Binary],
) -> _Expected | None:
    """By the pin of a distribution that brings the library, the catalogue, or the local version."""
    for binary in binaries.values():
        name, _ = split_owner(binary.owner)
        if (
            name is not None
            and name in pins
            and soname in (binary.elf.soname, binary.path.rpartition("/")[2])
        ):
            version = numbers(pins[name])
            if version is not None:
                return _Expected(version, f"its metadata asks for {name} {pins[name]}")
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
                return _Expected(version, f"as {installed.name} {release} for {local} was")
    made_for = numbers(built_for(local) or "") if local else None
    if made_for is not None and len(made_for) > 1 and _role(image, soname) == "runtime":
        return _Expected(made_for, f"its local version is +{local}")
    return None


def _version(image: ImageSubject, binary: Binary) -> Numbers | None:
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
