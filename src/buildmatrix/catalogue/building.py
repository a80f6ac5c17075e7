"""What the catalogue knows about making an image for a backend, and running it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from buildmatrix.catalogue.format.building import BuildPart, RunOptions, StartingBase, WheelOrigin
from buildmatrix.catalogue.load import Catalogue


@dataclass(frozen=True, slots=True)
class BackendBuild:
    """What differs between the images of one backend and those of another."""

    title: str
    #: With variables: of the stage that installs the wheels, and of the image.
    build: tuple[BuildPart, ...] = ()
    final: tuple[BuildPart, ...] = ()
    #: Of the image's user.
    groups: tuple[str, ...] = ()
    #: Debian packages of the image.
    packages: tuple[str, ...] = ()
    #: Where a container runtime puts the libraries of the host.
    library_folders: tuple[str, ...] = ()
    #: Names of libraries that the host must have, and no image.
    host_libraries: tuple[str, ...] = ()
    #: What a first specification starts with, and who says that there is such an image.
    base: StartingBase | None = None
    base_sources: tuple[str, ...] = ()
    wheels: tuple[WheelOrigin, ...] = ()
    runs: tuple[RunOptions, ...] = ()
    #: Why no image can be made, where none can.
    unbuildable: str | None = None


def backend_build(catalogue: Catalogue, backend: str) -> BackendBuild:
    """What the data files say about `backend`, which need not be known."""
    files = [file for file in catalogue.files.values() if file.backend == backend]
    parts = [part for file in files for part in file.build]
    in_image = [part for part in parts if part.stage == "final"]
    base, sources = next(
        (
            (base, tuple(file.sources[key] for key in base.source))
            for file in files
            for base in file.bases
        ),
        (None, ()),
    )
    return BackendBuild(
        title=files[0].title if files else backend,
        build=tuple(part for part in parts if part.stage == "build" and part.variables),
        final=tuple(part for part in in_image if part.variables),
        groups=_unique(part.groups for part in in_image),
        packages=_unique(part.packages for part in in_image),
        library_folders=_unique(part.library_folders for part in in_image),
        host_libraries=_unique(
            entry.names for file in files for entry in file.libraries if entry.where == "host"
        ),
        base=base,
        base_sources=sources,
        wheels=tuple(origin for file in files for origin in file.wheels),
        runs=tuple(run for file in files for run in file.runs),
        unbuildable=next((entry.reason for file in files for entry in file.unbuildable), None),
    )


def _unique(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    def names() -> Iterator[str]:
        for group in groups:
            yield from group

    return tuple(dict.fromkeys(names()))
