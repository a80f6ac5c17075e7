"""What images of a backend are made of, and how they run."""

from __future__ import annotations

from typing import Literal

from buildmatrix.catalogue.format.entry import CatalogueEntry


class BuildPart(CatalogueEntry, frozen=True):
    """What every image of the backend needs; `note` explains it in the Dockerfile."""

    #: That installs the wheels, or of the image itself.
    stage: Literal["build", "final"] = "final"
    variables: dict[str, str] = {}
    #: Of the image's user, where the base image has them.
    groups: tuple[str, ...] = ()
    #: Debian packages.
    packages: tuple[str, ...] = ()
    #: Where a container runtime puts the libraries of the host: in front of LD_LIBRARY_PATH.
    library_folders: tuple[str, ...] = ()


class StartingBase(CatalogueEntry, frozen=True):
    """The base image that a first specification names, and what goes with it."""

    #: With the placeholders of a specification: `{runtime.full}`, `{python}`.
    image: str
    #: As in a specification; none for a backend without version lines.
    runtimes: dict[str, dict[str, str]] = {}
    #: The Python versions that there are such images for; none where any will do.
    pythons: tuple[str, ...] = ()
    #: Whether the wheels bring all that it has, so that another image will do.
    optional: bool = False
    #: uv's name of the torch build, for projects with torch.
    torch: str = "cpu"
    #: Debian packages that this image lacks.
    packages: tuple[str, ...] = ()


class WheelOrigin(CatalogueEntry, frozen=True):
    """Where distributions for the backend come from; `note` says more, and is a sentence."""

    names: tuple[str, ...]
    #: `vendor`: an index or an SDK of the vendor's.
    origin: Literal["pypi", "vendor"]


class RunOptions(CatalogueEntry, frozen=True):
    """How a container gets at the devices: options of `docker run`; `note` says when."""

    options: tuple[str, ...]


class Unbuildable(CatalogueEntry, frozen=True):
    """Why there is no Linux image for the backend: the end of a sentence."""

    reason: str
