"""A side of a comparison, as far as it is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from buildmatrix.facts.inventory.model import Layer, Unread
from buildmatrix.judge.model import Finding, Verdict
from buildmatrix.reports.diff.model import Kind, VersionOf


@dataclass(frozen=True, slots=True)
class HeldDistribution:
    """One distribution of a side. None means unknown."""

    name: str
    version: str
    #: Backend of its image; only for sides with several images.
    backend: str = ""
    #: Bytes of its installed files, and of its wheel.
    size: int | None = None
    download: int | None = None
    #: Its wheel, and the wheel's sha256 in hex.
    wheel: str | None = None
    sha256: str | None = None
    index: str | None = None
    #: `facts.inventory.model.Distribution.record`.
    record: str | None = None
    #: `Requires-Dist` lines.
    requires: tuple[str, ...] | None = None
    #: Path of a binary relative to its distribution, to bytes and build id.
    binaries: Mapping[str, tuple[int, str]] | None = None


@dataclass(frozen=True, slots=True)
class Library:
    """One copy of a library that belongs to a vendor."""

    #: Without version and without additions of a wheel builder: `libcudnn_ops`.
    name: str
    vendor: str
    backend: str
    role: str
    path: str
    version: str = ""
    version_of: VersionOf = ""
    #: First component of the SONAME's version; empty if it has none.
    major: str = ""
    #: Toolkit line of the SONAME in the catalogue.
    toolkit: str = ""
    #: Name of the distribution that ships it.
    distribution: str = ""
    size: int = 0
    #: True if it is statically linked into `path`, without a file of its own.
    is_static: bool = False


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two sides of a comparison, as far as it is known."""

    #: Name given by the user: `docker:app:1.4`.
    source: str
    kind: Kind
    #: Subject of a report; empty if `source` says it.
    subject: str = ""
    #: Identifiers of the targets that it was judged for, with their backends.
    targets: Mapping[str, str] = field(default_factory=dict)
    #: True for a single wheel instead of a set of distributions.
    is_wheel: bool = False
    held: tuple[HeldDistribution, ...] = ()
    libraries: tuple[Library, ...] | None = None
    #: Distribution (empty for files without one) and vendor to architectures of device code.
    architectures: Mapping[tuple[str, str], frozenset[str]] | None = None
    #: Distributions with unread files, whose device code is not known in full.
    partial: frozenset[str] = frozenset()
    #: Vendor and backend to the bytes of their files.
    vendors: Mapping[tuple[str, str], int] | None = None
    #: Bytes of all files.
    size: int | None = None
    layers: tuple[Layer, ...] | None = None
    environment: Mapping[str, str] | None = None
    #: Base image, from its labels.
    base: str | None = None
    digest: str | None = None
    #: None if it was not judged.
    findings: tuple[Finding, ...] | None = None
    verdicts: tuple[Verdict, ...] | None = None
    unread: tuple[Unread, ...] = ()
    #: True if something requested is unknown.
    is_undecided: bool = False

    @property
    def backends(self) -> tuple[str, ...]:
        """Backends that it was judged for, without duplicates."""
        return tuple(dict.fromkeys(self.targets.values()))
