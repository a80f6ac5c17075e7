"""Versions of its backend's runtime in an image, by the image's content."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from buildmatrix.catalogue import drivers
from buildmatrix.catalogue.format.versions import StatedVersion
from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.lookup import distribution
from buildmatrix.catalogue.model import Evidence
from buildmatrix.catalogue.names import demangle, matches_any, version_of
from buildmatrix.catalogue.runtimes import built_for
from buildmatrix.device_code.entries import newer_version
from buildmatrix.device_code.model import DeviceCode
from buildmatrix.rules.belonging import title
from buildmatrix.rules.findings import split_owner
from buildmatrix.rules.subject import ImageSubject, once
from buildmatrix.spec.version_range import numbers


@dataclass(frozen=True, slots=True)
class Runtime:
    """One runtime library, or a copy that is linked into a file."""

    #: `12.8`, or `12` if only the line is known; None if unknown.
    version: str | None
    evidence: Evidence
    #: `libcudart.so.12 of nvidia-cuda-runtime-cu12 12.8.90`
    name: str

    def about(self, backend: str, catalogue: Catalogue) -> str:
        """The same with its version, as messages begin."""
        return f"{self.name} is of {title(backend, catalogue)} {self.version}"


@once
def runtimes(image: ImageSubject) -> tuple[Runtime, ...]:
    """The runtimes of the target's backend, the newest first; those of no known version last."""
    present = (
        Runtime(_version(image, item), item, _name(image, item))
        for item in image.evidence
        if item.kind in ("bundled", "static")
        and item.role == "runtime"
        and item.weight == "strong"
        and item.backend == image.backend
        and item.where != "host"
        and not item.path.endswith(".a")
    )

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
        for row in drivers.of_backend(image.catalogue.stated_versions, image.backend)
        if name is not None and matches_any(row.distributions, name)
    ]
    for statements in image.inventory.statements if rows else ():
        if statements.owner != owner:
            continue
        for row in rows:
            texts = statements.values.get(row.name, ())
            if len(texts) == 1 and f"/{statements.path}".endswith(f"/{row.file}"):
                yield row, texts[0]


def device_codes(image: ImageSubject) -> Mapping[str, tuple[DeviceCode, ...]]:
    """The device code of each file by its path."""
    return {
        **{binary.path: binary.elf.device_code for binary in image.inventory.binaries},
        **{artefact.path: artefact.device_code for artefact in image.inventory.artefacts},
    }


def _name(image: ImageSubject, item: Evidence) -> str:
    base = item.path.rpartition("/")[2]
    name, version = split_owner(item.distribution)
    holder = f"{name} {version}" if name else image.inventory.packaged.get(item.path, "the base")
    what = f"the runtime inside of {base}" if item.kind == "static" else base
    return f"{what} of {holder}"


def _version(image: ImageSubject, item: Evidence) -> str | None:
    """Return the best statement of a version, if it is of the line in the library's name."""
    for text in _said(image, item):
        version = numbers(text.rpartition(":")[2])
        if version and (item.toolkit is None or str(version[0]) == item.toolkit):
            return ".".join(map(str, version[:2]))
    return item.toolkit


def _said(image: ImageSubject, item: Evidence) -> Iterator[str]:
    catalogue = image.catalogue
    rows = drivers.of_backend(catalogue.runtime_versions, image.backend)
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
            yield built_for(match.build) or ""
    codes = device_codes(image).get(item.path, ()) if item.kind == "static" else ()
    language = None
    for code in codes:
        language = newer_version(language, code.language)
    if language is not None:
        yield drivers.compiles("ptx", language, image.backend, catalogue) or ""
    if name and version and match is not None and match.backend == image.backend:
        yield match.toolkit or ""
