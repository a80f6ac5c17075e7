"""BM205: a distribution is installed twice, and only one of the copies is ever imported."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence

from buildmatrix.catalogue.lookup import distribution
from buildmatrix.catalogue.model import DistributionMatch
from buildmatrix.inventory.model import Distribution, PythonPath
from buildmatrix.inventory.python_path import add_pythonpath, find_visible_distributions
from buildmatrix.phrases import listing, size
from buildmatrix.rules.findings import finding
from buildmatrix.rules.model import Finding, Fix, Severity
from buildmatrix.rules.subject import ImageSubject

_METADATA = ".dist-info"


def check(image: ImageSubject) -> Iterator[Finding]:
    """One finding per name: for what an interpreter sees twice, else for what a layer replaced."""
    reported: set[str] = set()
    for path, copies in _seen_twice(image):
        name = copies[0].name
        if name not in reported and _matters(image, copies):
            reported.add(name)
            yield _shadowed(image, path, copies)
    for name, version, place in _replaced(image):
        if name not in reported:
            reported.add(name)
            yield from _exchanged(image, name, version, place)


def _seen_twice(image: ImageSubject) -> Iterator[tuple[PythonPath | None, list[Distribution]]]:
    """Yield copies that one interpreter finds, the one that it imports first."""
    everything = image.inventory.distributions
    for python_path in image.inventory.python_paths:
        path = add_pythonpath(python_path, image.inventory.environment)
        first = find_visible_distributions(path, everything)
        for name, copies in _by_name(
            item for item in everything if posixpath.dirname(item.path) in path.folders
        ).items():
            if len(copies) > 1:
                yield path, sorted(copies, key=lambda copy: (copy != first[name], copy.path))
    for copies in _by_folder(everything):
        yield None, copies


def _by_folder(everything: Sequence[Distribution]) -> Iterator[list[Distribution]]:
    """Yield copies in one folder; which of them was unpacked last is unknown."""
    folders: dict[str, list[Distribution]] = {}
    for item in everything:
        folders.setdefault(posixpath.dirname(item.path), []).append(item)
    for _, neighbors in sorted(folders.items()):
        for _, copies in sorted(_by_name(neighbors).items()):
            if len(copies) > 1:
                yield copies


def _by_name(distributions: Iterable[Distribution]) -> Mapping[str, list[Distribution]]:
    names: dict[str, list[Distribution]] = {}
    for item in sorted(distributions, key=lambda item: item.path):
        names.setdefault(item.name, []).append(item)
    return names


def _match(image: ImageSubject, name: str, version: str) -> DistributionMatch | None:
    match = distribution(name, version, image.catalogue)
    return match if match is not None and match.vendor is not None else None


def _matters(image: ImageSubject, copies: Sequence[Distribution]) -> bool:
    """Return True if a copy belongs to a backend: every Debian image has two copies of pip."""
    return any(_match(image, copy.name, copy.version) is not None for copy in copies)


def _shadowed(
    image: ImageSubject, path: PythonPath | None, copies: Sequence[Distribution]
) -> Finding:
    first, *others = copies
    folders = {posixpath.dirname(copy.path) for copy in copies}
    places = listing(f"{copy.version} in {posixpath.dirname(copy.path)}" for copy in copies)
    if len(folders) == 1:
        message = (
            f"{first.name} is recorded as {' and '.join(copy.version for copy in copies)} in "
            f"{folders.pop()}: one was unpacked over the other, and it is unclear which files "
            "belong to which"
        )
    else:
        interpreter = "an interpreter" if path is None else path.interpreter
        hidden = sum(other.size for other in others)
        message = (
            f"{interpreter} finds {first.name} twice ({places}): it imports {first.version}"
            + (f", and {size(hidden)} are never used" if hidden else "")
        )
    return finding(
        "BM205",
        image,
        message,
        severity=_severity(image, copies),
        vendor=_vendor(image, copies),
        owner=first.owner,
        path=first.path,
        chain=(*image.chain_to(first.name), *(copy.path for copy in copies)),
        fix=Fix(
            "remove",
            f"keep one {first.name}: install it into the environment that the image runs, take the "
            "other out of the base image or its requirements, and leave PYTHONPATH alone",
        ),
    )


def _severity(image: ImageSubject, copies: Sequence[Distribution]) -> Severity:
    """Return an error if the copies are builds for different backends, or the winner is unknown."""
    matches = [_match(image, copy.name, copy.version) for copy in copies]
    backends = {None if match is None else match.backend for match in matches}
    mixed = len({posixpath.dirname(copy.path) for copy in copies}) < len(copies)
    different = len({copy.version for copy in copies}) > 1
    return "error" if len(backends) > 1 or (mixed and different) else "warning"


def _vendor(image: ImageSubject, copies: Sequence[Distribution]) -> str | None:
    """The vendor of the first copy that is foreign, else of the first that has one."""
    matches = [
        match for copy in copies if (match := _match(image, copy.name, copy.version)) is not None
    ]
    foreign = [match for match in matches if image.is_foreign(match)]
    return next((match.vendor for match in (*foreign, *matches)), None)


# What a later layer put in the place of what an earlier one had


def _replaced(image: ImageSubject) -> Iterator[tuple[str, str, str]]:
    """Name, version and place of distributions whose metadata a later layer deleted."""
    for buried in image.inventory.buried:
        last = buried.path.rpartition("/")[2]
        if last.endswith(_METADATA):
            name, dash, version = last.removesuffix(_METADATA).partition("-")
            if dash:
                yield name.replace("_", "-").replace(".", "-").lower(), version, buried.path


def _exchanged(image: ImageSubject, name: str, version: str, place: str) -> Iterator[Finding]:
    """Find a build for one backend that replaced one for another."""
    before = _match(image, name, version)
    for now in image.inventory.distributions:
        if now.name != name or now.version == version:
            continue
        after = _match(image, name, now.version)
        backends = [None if match is None else match.backend for match in (before, after)]
        if backends[0] == backends[1] or image.backend not in backends[:1]:
            continue
        yield finding(
            "BM205",
            image,
            f"{name} {version}, which an earlier layer had for {image.backend}, was replaced by "
            f"{now.version}: the base's build is gone, and its bytes still ship",
            severity="error",
            vendor=None if after is None else after.vendor,
            owner=f"{name}=={now.version}",
            path=now.path,
            chain=(*image.chain_to(name), place, now.path),
            fix=Fix(
                "pin",
                f"require the {name} that the base image has (`{name}=={version}`), or take a base "
                f"image without {name}",
            ),
        )
        return
