"""Why a routed family cannot be resolved: the release has no build there, and which one has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.catalogue.releases import gap
from buildmatrix.catalogue.runtimes import built_for, toolkit_line
from buildmatrix.errors import UndecidedError
from buildmatrix.index.client import Client
from buildmatrix.locks.choose import nearest_build
from buildmatrix.locks.lines import RequirementLine
from buildmatrix.locks.pinned import pin_of
from buildmatrix.locks.plan import TORCH_FAMILY, index_of
from buildmatrix.locks.platform import marker_environment
from buildmatrix.locks.requirement_set import applies
from buildmatrix.spec.bare import ANY
from buildmatrix.spec.model import Target
from buildmatrix.text import shown

#: Names of the files that an index has of a distribution; raises `UndecidedError`.
Listing = Callable[[str, str], Iterable[str]]


def ask_index(index: str, name: str) -> tuple[str, ...]:
    """A `Listing` that asks the index itself."""
    with Client() as client:
        return tuple(file.filename for file in client.project(index, name))


def without_build(target: Target, lines: Iterable[RequirementLine], listing: Listing | None) -> str:
    """Describe the missing builds of pinned members of a family that `target` takes from an index.

    Empty where that is not the reason, or where it is not known. Without a `listing` no index is
    asked.
    """
    environment = marker_environment(target)
    sentences = (
        sentence
        for line in lines
        if applies(line, environment) and (version := pin_of(line)) is not None
        for sentence in _missing(target, line.name, version, listing, load())
    )
    return " ".join(dict.fromkeys(sentences))


def _missing(
    target: Target, name: str, version: str, listing: Listing | None, catalogue: Catalogue
) -> Iterator[str]:
    platform = (
        target.backend if target.runtime in ("", ANY) else f"{target.backend} {target.runtime}"
    )
    index = index_of(name, target)
    if index is None:
        missing = None
        if target.torch is not None and name in TORCH_FAMILY:
            missing = gap(name, version, target.backend, target.runtime, catalogue)
        if missing is not None:
            instead = missing.nearest
            yield _sentence(
                f"{name} {missing.release}",
                platform,
                f"{instead.release}, from {instead.route}" if instead is not None else None,
            )
        return
    if listing is None:
        return
    try:
        files = listing(index, name)
    except UndecidedError:
        return
    release = version.partition("+")[0]
    nearest = nearest_build(version, target, files, _marks(target, catalogue))
    if nearest is None or nearest.version.partition("+")[0] == release:
        return
    yield _sentence(f"{name} {release}", f"{platform} on {shown(index)}", nearest.version)


def _sentence(release: str, platform: str, nearest: str | None) -> str:
    instead = f"the nearest that has one is {nearest}" if nearest else "no release has one"
    return f"{release} has no build for {platform}; {instead}."


def _marks(target: Target, catalogue: Catalogue) -> list[str]:
    """Starts of local versions of builds for the target, the best first."""
    entry = catalogue.backends.get(target.backend)
    routes = [route.name for route in entry.indexes] if entry is not None else []
    if target.runtime in ("", ANY):
        return [*routes, target.backend]
    line = toolkit_line(target.runtime)
    exact = [item for item in routes if built_for(item) == target.runtime]
    near = [
        item for item in routes if line is not None and toolkit_line(built_for(item) or "") == line
    ]
    any_runtime = [item for item in routes if built_for(item) is None]
    own = f"{target.backend}{target.runtime}"
    return list(dict.fromkeys([*exact, own, *reversed(near), *any_runtime]))
