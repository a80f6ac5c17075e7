"""Bytes of a target by owner and requirement, and those not usable on its backend."""

from __future__ import annotations

from dataclasses import dataclass

from buildmatrix.rules.contents import NativeComponent, SbomComponent


@dataclass(frozen=True, slots=True)
class VendorBytes:
    """Bytes that belong to one vendor."""

    #: Empty for what belongs to none.
    vendor: str
    size: int
    #: Part of them that is not usable on the backend.
    wasted: int = 0


@dataclass(frozen=True, slots=True)
class FileBytes:
    """One of the largest files."""

    path: str
    size: int
    #: Vendor with the largest part of it; empty if no vendor has a part.
    vendor: str = ""
    #: Bytes of that vendor's.
    held: int = 0
    wasted: int = 0


@dataclass(frozen=True, slots=True)
class DistributionBytes:
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


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """One layer of an image, the lowest first."""

    #: Instruction that made it; empty if the image does not record it.
    instruction: str
    size: int
    #: Deleted or replaced by a later layer: these bytes still ship.
    hidden: int
    #: Part of the remaining bytes that is not usable on the backend.
    wasted: int
    is_base: bool = False


@dataclass(frozen=True, slots=True)
class Composition:
    """The bytes of one target, as they are installed."""

    #: The largest first.
    distributions: tuple[DistributionBytes, ...] = ()
    #: Layers of an image, if they were read.
    layers: tuple[LayerBytes, ...] = ()
