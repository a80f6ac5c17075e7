"""Report of `inspect` on a file; the JSON output has these names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from buildmatrix.catalogue.model import Evidence
from buildmatrix.inventory.model import Artefact, Binary, Distribution, Unread
from buildmatrix.symbols.imported import Imports


@dataclass(frozen=True, slots=True)
class Share:
    """Share of one vendor in a wheel, in one role."""

    vendor: str
    backend: str
    role: str
    #: Bytes of the files that are the vendor's, and of its device code inside of others.
    size: int
    files: int
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Machines:
    """Requirements on the machine that runs it."""

    #: Who says so: a target and its node classes.
    name: str
    backend: str
    #: GPU architectures, `sm_90`, `gfx942`.
    archs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Holding:
    """One distribution, or with an empty name all files that none owns."""

    name: str
    version: str
    size: int
    #: Backend → bytes of its files and device code, the most first.
    backends: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LayerShare:
    """One layer of an image."""

    #: What made it; empty where the image does not say.
    instruction: str
    size: int
    #: Bytes of it that later layers deleted or replaced.
    hidden: int
    #: Files of it that matter to an accelerator or to Python.
    files: int
    backends: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Architecture:
    """Device code of one architecture, in all files together."""

    backend: str
    #: `sm_90`, `gfx942`; empty where the bytes do not say.
    arch: str
    #: As `device_code.model.DeviceCode.kind`.
    kind: str
    size: int
    count: int
    files: int
    #: `native`, `jit` or `none` on the machines; empty where that is not known.
    use: str = ""


@dataclass(frozen=True, slots=True)
class VariantUse:
    """Use of a wheel variant by the machines of a node class, or of a target without any."""

    machines: str
    use: Literal["taken", "not-taken", "undecided"]
    #: Why it is not taken, or why nobody knows.
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReleaseVariant:
    """A wheel variant: that of a distribution, or one of a release on an index."""

    label: str
    #: `demo 1.0`; empty for those of a release.
    distribution: str
    #: `nvidia :: sm_arch :: 90_real`, sorted.
    properties: tuple[str, ...] = ()
    #: Nothing where no target was selected.
    uses: tuple[VariantUse, ...] = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """Totals of a wheel, an image or a tree."""

    files: int
    size: int
    binaries: int
    shares: tuple[Share, ...] = ()
    distributions: tuple[Holding, ...] = ()
    layers: tuple[LayerShare, ...] = ()
    architectures: tuple[Architecture, ...] = ()
    machines: Machines | None = None


@dataclass(frozen=True, slots=True)
class Inspection:
    """Everything about one file (an ELF object, a file of device code, a wheel), or one tree."""

    path: str
    size: int
    kind: str
    binaries: tuple[Binary, ...] = ()
    artefacts: tuple[Artefact, ...] = ()
    distributions: tuple[Distribution, ...] = ()
    #: Only for single ELF objects.
    imports: tuple[Imports, ...] = ()
    #: The catalogue's opinion.
    evidence: tuple[Evidence, ...] = ()
    #: Only for wheels and trees, largest first.
    shares: tuple[Share, ...] = ()
    #: What could not be read; what else is here stands.
    unread: tuple[Unread, ...] = ()
    #: Only for wheels and trees.
    contents: Contents | None = None
    #: Of distributions that are variants, and what an index says of the variants of a release.
    variants: tuple[ReleaseVariant, ...] = ()


@dataclass(frozen=True, slots=True)
class Inspections:
    """Inspections of everything that one command was asked about."""

    schema: Literal["buildmatrix/inspect/1"] = field(default="buildmatrix/inspect/1", kw_only=True)
    files: tuple[Inspection, ...]
