"""Files that a vendor's license does not let everybody redistribute, for BM608 and BM609."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from buildmatrix.catalogue.format.names import Redistribution
from buildmatrix.catalogue.names import demangle, matches_any
from buildmatrix.inventory.model import Distribution
from buildmatrix.rules.licenses import licenses
from buildmatrix.rules.subject import ImageSubject
from buildmatrix.spec.model import Listed

#: Entry of `forbid-licenses` that enables it.
NOT_REDISTRIBUTABLE = "LicenseRef-Not-Redistributable"


def is_about_redistribution(entry: Listed) -> bool:
    """Return True if an entry of `forbid-licenses` is about redistribution."""
    return entry.text.lower() == NOT_REDISTRIBUTABLE.lower()


def find_withheld(image: ImageSubject) -> Iterator[tuple[str | None, str, list[str]]]:
    """Owner, license, and paths of files that the license of their vendor does not list."""
    held: dict[tuple[str | None, str], list[str]] = {}
    for path, owner in _files(image):
        covering = _of_distribution(image, owner) or _of_path(image, path)
        name = demangle(path.rpartition("/")[2])
        if covering and not any(matches_any(entry.names, name) for entry in covering):
            held.setdefault((owner, covering[0].license), []).append(path)
    for (owner, license), paths in held.items():
        yield owner, license, paths


def unread(image: ImageSubject) -> Iterator[tuple[Distribution, str]]:
    """Yield distributions under their vendor's own terms that are not in the catalogue."""
    for item in image.inventory.distributions:
        terms = next((text for text in licenses(item) if "licenseref-" in text.lower()), None)
        if terms and not _of_distribution(image, item.owner):
            yield item, terms


def _files(image: ImageSubject) -> Iterator[tuple[str, str | None]]:
    """Programs, libraries, archives and device code; of those that stayed closed what the
    catalogue knows as tools, and libraries.
    """
    for binary in image.inventory.loadable:
        yield binary.path, binary.owner
    for artefact in image.inventory.artefacts:
        if artefact.container is None:
            yield artefact.path, artefact.owner
    for file in image.inventory.closed:
        name = file.path.rpartition("/")[2]
        if ".so" in name or image.catalogue.tools.find(name):
            yield file.path, file.owner


def _of_distribution(image: ImageSubject, owner: str | None) -> Sequence[Redistribution]:
    name = (owner or "").partition("==")[0]
    entries = (owned.entry for owned in image.catalogue.redistribution)
    return [entry for entry in entries if name and matches_any(entry.distributions, name)]


def _of_path(image: ImageSubject, path: str) -> Sequence[Redistribution]:
    entries = (owned.entry for owned in image.catalogue.redistribution)
    return [entry for entry in entries if matches_any(entry.paths, path)]
