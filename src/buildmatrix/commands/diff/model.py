"""A side of a comparison: what is compared, as far as anything is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from buildmatrix.inventory.model import Layer, Unread
from buildmatrix.reports.diff.model import Kind, VersionOf
from buildmatrix.rules.model import Finding, Verdict


@dataclass(frozen=True, slots=True)
class HeldDistribution:
    """One distribution of a side. None stands for what the side does not say."""

    name: str
    version: str
    #: Only where a side holds several images: the backend of the one that it is in.
    backend: str = ""
    #: Bytes of its files once installed, and of its wheel.
    size: int | None = None
    download: int | None = None
    #: The wheel that it comes from, and its sha256 in hex.
    wheel: str | None = None
    sha256: str | None = None
    index: str | None = None
    #: `inventory.model.Distribution.record`.
    record: str | None = None
    #: `Requires-Dist` lines.
    requires: tuple[str, ...] | None = None
    #: Path of a binary as seen from its distribution → its bytes and its build id.
    binaries: Mapping[str, tuple[int, str]] | None = None


@dataclass(frozen=True, slots=True)
class Library:
    """One copy of a library that belongs to a vendor."""

    #: Without version and without what a wheel builder put into it: `libcudnn_ops`.
    name: str
    vendor: str
    backend: str
    role: str
    path: str
    version: str = ""
    version_of: VersionOf = ""
    #: First component of the SONAME's version; empty where it has none.
    major: str = ""
    #: Line of the toolkit that the catalogue gives to the SONAME.
    toolkit: str = ""
    #: Name of the distribution that ships it.
    distribution: str = ""
    size: int = 0
    #: Linked into `path` statically: it has no file of its own.
    is_static: bool = False


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two things that are compared, as far as it is known."""

    #: As the user calls it: `docker:app:1.4`.
    source: str
    kind: Kind
    #: What a report is about; empty where `source` says it.
    subject: str = ""
    #: Identifier → backend, of the targets that it was judged for.
    targets: Mapping[str, str] = field(default_factory=dict)
    #: Whether it is one wheel, and no set of distributions.
    is_wheel: bool = False
    held: tuple[HeldDistribution, ...] = ()
    libraries: tuple[Library, ...] | None = None
    #: Distribution (empty for files without one) and vendor → architectures of its device code.
    architectures: Mapping[tuple[str, str], frozenset[str]] | None = None
    #: Distributions of which not all files were read: their device code is not known in full.
    partial: frozenset[str] = frozenset()
    #: Vendor and backend → bytes that are theirs.
    vendors: Mapping[tuple[str, str], int] | None = None
    #: Bytes of all files.
    size: int | None = None
    layers: tuple[Layer, ...] | None = None
    environment: Mapping[str, str] | None = None
    #: The image that it was built from, as its labels have it.
    base: str | None = None
    digest: str | None = None
    #: None where it was not judged.
    findings: tuple[Finding, ...] | None = None
    verdicts: tuple[Verdict, ...] | None = None
    unread: tuple[Unread, ...] = ()
    #: Whether something that was asked for is not known.
    is_undecided: bool = False

    @property
    def backends(self) -> tuple[str, ...]:
        """The backends that it was judged for, each once."""
        return tuple(dict.fromkeys(self.targets.values()))
