"""Contents of a bill of materials: requirements and native components.

Components come from the bytes of distributions and from their own SBOMs (PEP 770).
"""

from __future__ import annotations

from dataclasses import dataclass

from buildmatrix.catalogue.model import Confidence, EvidenceKind


@dataclass(frozen=True, slots=True)
class NativeComponent:
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


@dataclass(frozen=True, slots=True)
class SbomComponent:
    """A component that an SBOM of a distribution names."""

    #: Package URL.
    purl: str
    #: True if a library of the distribution has a similar name; None if file names do not show it,
    #: such as for crates.
    seen: bool | None
