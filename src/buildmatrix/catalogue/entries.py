"""Entries of a data file: names of a backend's files and packages, and how its images are made.

The classes are the file's tables; `docs/catalogue.md` describes them for its authors. msgspec
checks types, allowed values and unknown keys when it builds them. Globs are those of `fnmatch`.
"""

from __future__ import annotations

import datetime
from typing import Annotated, Literal

import msgspec

from buildmatrix.catalogue.model import DistributionKind, EvidenceKind, LeftoverKind, Weight, Where

#: Source of an entry. `verified`: read from a real file, or from real package metadata.
#: `documented`: a named public source. `inferred`: deduced from observed data. `memory`: well
#: known, no source retrieved.
Basis = Literal["verified", "documented", "inferred", "memory"]


class CatalogueEntry(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="kebab"
):
    """Fields of all entries."""

    #: Keys of the file's table `sources`.
    source: tuple[str, ...]
    basis: Basis
    #: When the source was last looked at; default: the date of the file.
    checked: datetime.date | None = None
    note: str | None = None


class LibraryEntry(CatalogueEntry, frozen=True):
    """Names of shared libraries (and of static ones), as file names, SONAMEs and NEEDED have them.

    The components of a version are a prefix: `libnccl.so.2` also means `libnccl.so.2.30.7`, and
    `libcudart.so.*` means every version and none.
    """

    names: tuple[str, ...]
    role: str
    where: Where = "image"
    weight: Weight = "strong"
    #: Version in the soname -> toolkit line, or all lines that share it.
    toolkits: dict[str, str | tuple[str, ...]] = {}
    #: Globs of paths. Names that others use too count only for files that lie there.
    under: tuple[str, ...] = ()


class DistributionEntry(CatalogueEntry, frozen=True):
    """Names of Python distributions; `name+local` also asks for a local version, by glob."""

    names: tuple[str, ...]
    kind: DistributionKind
    weight: Weight = "strong"
    #: The toolkit line; `version`: the first component of the distribution's version. Else a
    #: regular expression for a part of the version, with a group `toolkit`.
    toolkit: str | None = None
    #: By backend: `ACTION [TARGET][; NOTE]`, see `model.Replacement`.
    replace: dict[str, str] = {}
    tolerated_in: tuple[str, ...] = ()
    #: For a meta package that installs nothing but by its extras: extra -> distributions.
    extras: dict[str, tuple[str, ...]] | None = None
    #: Whether all that it is for fails without a device of the backend.
    needs_device: bool = False
    #: Platforms (`linux/amd64`) and versions (PEP 440) whose public files the entry is about;
    #: empty for all.
    platforms: tuple[str, ...] = ()
    versions: str = ""


class SourceTrace(CatalogueEntry, frozen=True):
    """Signs in a source distribution that its build makes code for the backend."""

    #: Suffixes of files, without a dot.
    suffixes: tuple[str, ...] = ()
    #: Regular expressions for text of build files; upper and lower case are the same.
    patterns: tuple[str, ...] = ()


class CondaPackageEntry(CatalogueEntry, frozen=True):
    """Names of conda packages that install a Python distribution of another name."""

    names: tuple[str, ...]
    distribution: str


class ChannelEntry(CatalogueEntry, frozen=True):
    """Channels of conda whose packages show in name, build or requirements whose they are."""

    #: Globs of addresses without a scheme.
    names: tuple[str, ...]


class LocalVersion(CatalogueEntry, frozen=True):
    """A local version (PEP 440) that names the backend a wheel was built for."""

    #: Regular expression for a part of the local version that no letter precedes; a group `toolkit`
    #: gives the line.
    pattern: str
    weight: Weight = "strong"


class ModuleEntry(CatalogueEntry, frozen=True):
    """First names of Python modules that come with other software than Python distributions."""

    names: tuple[str, ...]


class SystemPackageEntry(CatalogueEntry, frozen=True):
    """Names of packages of the system's package manager."""

    names: tuple[str, ...]
    where: Where = "image"
    weight: Weight = "strong"


class Root(CatalogueEntry, frozen=True):
    """Globs of paths where everything belongs to the backend, whatever it is called."""

    paths: tuple[str, ...]


class EnvironmentEntry(CatalogueEntry, frozen=True):
    """Environment variables of images."""

    names: tuple[str, ...]
    #: Globs of values that count; `toolkit` is only read from values that match.
    values: tuple[str, ...] = ("*",)
    #: Values that switch the backend off, and so say nothing.
    idle: tuple[str, ...] = ("",)
    weight: Weight = "weak"
    #: Regular expression from the start of the value, with a group `toolkit`.
    toolkit: str | None = None


class ImageEntry(CatalogueEntry, frozen=True):
    """Repositories of images made for the backend."""

    names: tuple[str, ...]


class SectionEntry(CatalogueEntry, frozen=True):
    """Sections that hold device code, for files whose containers could not be read."""

    names: tuple[str, ...]
    weight: Weight = "strong"


class DeviceCodeEntry(CatalogueEntry, frozen=True):
    """Device code by format, kind and architecture; all three must fit.

    As in `facts.elf.model.DeviceCode`.
    """

    formats: tuple[str, ...] = ("*",)
    kinds: tuple[str, ...] = ("*",)
    #: Globs; without them an entry also fits code whose architecture is unknown.
    architectures: tuple[str, ...] = ()
    weight: Weight = "strong"


class Static(CatalogueEntry, frozen=True):
    """Proof that a runtime was linked statically: any of `marks`."""

    name: str
    role: str
    #: The runtime as a shared library: it has its own marks, and is not linked into itself.
    shared: tuple[str, ...]
    marks: tuple[str, ...]
    weight: Weight = "strong"
    #: Bytes that it adds to a file, about.
    size: int = 0


class ToolEntry(CatalogueEntry, frozen=True):
    """File names of tools, device bitcode and the like."""

    names: tuple[str, ...]
    role: str = "compiler"
    where: Where = "image"
    weight: Weight = "strong"


class Route(CatalogueEntry, frozen=True):
    """Places that serve builds of a family of distributions."""

    family: str
    #: Name of the place, as uv knows it -> toolkit line; empty where it stands for none.
    routes: dict[str, str] = {}
    #: Release of the family (`2.6`) -> names of the places that serve builds of it.
    releases: dict[str, tuple[str, ...]] = {}


class ExceptionRule(CatalogueEntry, frozen=True):
    """An exception: something that looks like evidence and is not, or is where it belongs.

    All given conditions must hold; the weight `neutral` removes the evidence.
    """

    #: Kinds of evidence.
    kinds: tuple[EvidenceKind, ...]
    #: Backends of the evidence; default: all.
    backends: tuple[str, ...] = ("*",)
    #: Globs of the library that was named, of the file that names it, and of that file's path.
    names: tuple[str, ...] = ("*",)
    files: tuple[str, ...] = ("*",)
    paths: tuple[str, ...] = ("*",)
    weight: Weight | None = None
    where: Where | None = None


class Redistribution(CatalogueEntry, frozen=True):
    """Files that a vendor's license lets everybody redistribute; nothing more about these files."""

    license: str
    #: Globs of the distributions that come with this license, and of the paths that its own
    #: installer fills.
    distributions: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    #: Globs of file names.
    names: tuple[str, ...] = ()


class ArtifactEntry(CatalogueEntry, frozen=True):
    """Compiled networks by format, which only some versions of their library load."""

    formats: tuple[str, ...]
    #: `TensorRT engine`
    title: str
    library: str
    #: What brings the library in its version: globs of distributions; below, of packages of the
    #: system, and of files whose names end with the version.
    distributions: tuple[str, ...]
    #: Numbers of the version that must be equal.
    parts: Annotated[int, msgspec.Meta(ge=1, le=4)]
    system_packages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    #: Major version that wrote it -> those of newer libraries that load what was built for that.
    newer_loads: dict[str, tuple[str, ...]] = {}
    #: Whether the library refuses all others; else it compiles again.
    refused: bool = True


class Framework(CatalogueEntry, frozen=True):
    """Names of distributions that compile for a device, or whose plugins do."""

    names: tuple[str, ...]


class CacheEntry(CatalogueEntry, frozen=True):
    """Folders that a program keeps for itself: what lies in them is not installed."""

    #: `uv's cache`
    title: str
    kind: LeftoverKind
    #: Paths, from the root on with a leading `/`, else anywhere; `*` stands for a part of one name.
    folders: tuple[str, ...]
    #: What to do, so that it is not left in an image.
    advice: str
    #: Environment variables that name such a folder.
    variables: tuple[str, ...] = ()


class BuildPart(CatalogueEntry, frozen=True):
    """Parts that every image of the backend needs; `note` explains them in the Dockerfile."""

    #: That installs the wheels, or of the image itself.
    stage: Literal["build", "final"] = "final"
    variables: dict[str, str] = {}
    #: Of the image's user, where the base image has them.
    groups: tuple[str, ...] = ()
    #: Debian packages.
    packages: tuple[str, ...] = ()
    #: The same by the names of Fedora and RHEL, for bases with dnf.
    rpm_packages: tuple[str, ...] = ()
    #: Where a container runtime puts the libraries of the host: in front of LD_LIBRARY_PATH.
    library_folders: tuple[str, ...] = ()


class StartingBase(CatalogueEntry, frozen=True):
    """The base image that a first specification names, and what goes with it."""

    #: With the placeholders of a specification: `{runtime.full}`, `{python}`.
    image: str
    #: Name for `init --distribution`; `runtimes` and `torch` are then those of the backend's usual
    #: base, whose name is empty.
    distribution: str = ""
    #: As in a specification; none for a backend without version lines.
    runtimes: dict[str, dict[str, str]] = {}
    #: The Python versions that there are such images for; none where any will do.
    pythons: tuple[str, ...] = ()
    #: Whether the wheels bring all that it has, so that another image will do.
    optional: bool = False
    #: uv's name of the torch build, for projects with torch.
    torch: str = "cpu"
    #: Packages of its distribution that this image lacks.
    packages: tuple[str, ...] = ()


class WheelOrigin(CatalogueEntry, frozen=True):
    """Origin of distributions for the backend; `note` has more, and is a sentence."""

    names: tuple[str, ...]
    #: `vendor`: an index or an SDK of the vendor's.
    origin: Literal["pypi", "vendor"]


class RunOptions(CatalogueEntry, frozen=True):
    """Options of `docker run` that give a container the devices; `note` says when."""

    options: tuple[str, ...]


class Unbuildable(CatalogueEntry, frozen=True):
    """Why there is no Linux image for the backend: the end of a sentence."""

    reason: str
