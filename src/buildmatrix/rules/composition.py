"""What the bytes of a target are: whose, who asked for them, and which are of no use there."""

from __future__ import annotations

from dataclasses import dataclass

from buildmatrix.rules.contents import NativeComponent, SbomComponent


@dataclass(frozen=True, slots=True)
class VendorBytes:
    """What belongs to one vendor."""

    #: Empty for what belongs to none.
    vendor: str
    size: int
    #: Of these, of no use on the backend.
    wasted: int = 0


@dataclass(frozen=True, slots=True)
class FileBytes:
    """One of the largest files."""

    path: str
    size: int
    #: The vendor that has most of it, of those that have any; empty where none has.
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
    #: The requirement line that brought it (`requirements.in:3`), and the distribution that this
    #: names; empty where that is not known.
    line: str
    asker: str
    size: int
    wasted: int
    #: Adds up to the two before, the largest first.
    vendors: tuple[VendorBytes, ...]
    #: The largest of its files that programs load; what they lack is in the rest.
    files: tuple[FileBytes, ...] = ()
    #: Names of the distributions whose libraries its own link.
    links: tuple[str, ...] = ()
    #: Names of the distributions that require it, as the lock says, else their metadata.
    required_by: tuple[str, ...] = ()
    #: What in it belongs to vendors of accelerators, by path.
    libraries: tuple[NativeComponent, ...] = ()
    #: What its own SBOMs name.
    sbom: tuple[SbomComponent, ...] = ()


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """One layer of an image, the lowest first."""

    #: What made it; empty where the image does not say.
    instruction: str
    size: int
    #: Deleted or replaced by a later layer: these bytes still ship.
    hidden: int
    #: Of what is left, of no use on the backend.
    wasted: int
    is_base: bool = False


@dataclass(frozen=True, slots=True)
class Composition:
    """The bytes of one target, as they are installed."""

    #: The largest first.
    distributions: tuple[DistributionBytes, ...] = ()
    #: Of an image whose layers were read.
    layers: tuple[LayerBytes, ...] = ()
