"""Composition of a target: bytes by owner and requirement, and components in them."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct

from buildmatrix.catalogue.model import Confidence, EvidenceKind

# Requirements and native components, from the bytes of distributions and their SBOMs (PEP 770)


class NativeComponent(Struct, frozen=True):
    """A file that is, or contains, a component of an accelerator's vendor."""

    path: str
    vendor: str
    #: `runtime`, `math`, `dnn`, ... as the catalogue calls it.
    role: str
    #: Kinds of evidence: the file itself (`bundled`, `tool`), or its content (`static`,
    #: `device-code`).
    kinds: tuple[EvidenceKind, ...]
    confidence: Confidence
    size: int = 0
    #: Empty for a file that has none, or whose dynamic section was not read.
    soname: str = ""
    #: Ending of its file name or soname: `12.8.90`, `12`; not always the toolkit's version.
    version: str = ""
    #: `.nv_fatbin: sm_75 sm_80`
    details: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    #: True if an SBOM of the distribution lists it; None if there is no SBOM.
    in_sbom: bool | None = None


class SbomComponent(Struct, frozen=True):
    """A component that an SBOM of a distribution names."""

    #: Package URL.
    purl: str
    #: True if a library of the distribution has a similar name; None if file names do not show it,
    #: such as for crates.
    seen: bool | None


# Bytes by owner and requirement line


class VendorBytes(Struct, frozen=True):
    """Bytes that belong to one vendor."""

    #: Empty for what belongs to none.
    vendor: str
    size: int
    #: Part of them that is not usable on the backend.
    wasted: int = 0


class FileBytes(Struct, frozen=True):
    """One of the largest files."""

    path: str
    size: int
    #: Vendor with the largest part of it; empty if no vendor has a part.
    vendor: str = ""
    #: Bytes of that vendor's.
    held: int = 0
    wasted: int = 0


class DistributionBytes(Struct, frozen=True):
    """One distribution, or all that belongs to none."""

    #: Empty for what belongs to no distribution.
    name: str
    version: str
    #: The requirement line that requires it (`requirements.in:3`), and the distribution that this
    #: names; empty where that is not known.
    line: str
    asker: str
    size: int
    wasted: int
    #: Adds up to the two before, the largest first.
    vendors: tuple[VendorBytes, ...]
    #: The largest of its files that programs load; what they lack is in the rest.
    files: tuple[FileBytes, ...] = ()
    #: Names of distributions with libraries that its own link.
    links: tuple[str, ...] = ()
    #: Names of the distributions that require it, as the lock says, else their metadata.
    required_by: tuple[str, ...] = ()
    #: Components of accelerator vendors, by path.
    libraries: tuple[NativeComponent, ...] = ()
    #: Components in its own SBOMs.
    sbom: tuple[SbomComponent, ...] = ()


class LayerBytes(Struct, frozen=True):
    """One layer of an image, the lowest first."""

    #: Instruction that made it; empty if the image does not record it.
    instruction: str
    size: int
    #: Deleted or replaced by a later layer: these bytes still ship.
    hidden: int
    #: Part of the remaining bytes that is not usable on the backend.
    wasted: int
    is_base: bool = False


class SystemComponent(Struct, frozen=True):
    """A package that the system's package manager installed."""

    name: str
    version: str
    #: Package URL.
    purl: str
    #: Both empty if the package manager does not record them.
    vendor: str = ""
    license: str = ""


@dataclass(frozen=True, slots=True)
class Composition:
    """The bytes of one target, as they are installed."""

    #: The largest first.
    distributions: tuple[DistributionBytes, ...] = ()
    #: Layers of an image, if they were read.
    layers: tuple[LayerBytes, ...] = ()
    #: By package URL; None without any. The metadata is `IF_KNOWN` of `judge.model`, which imports
    #: this module.
    system: tuple[SystemComponent, ...] | None = field(default=None, metadata={"json": "if known"})
