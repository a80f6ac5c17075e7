"""What a bill of materials says of a target beside its verdicts: who requires what, and the native
components of its distributions, by their bytes and by their own SBOMs (PEP 770).
"""

from __future__ import annotations

from dataclasses import dataclass

from buildmatrix.catalogue.model import Confidence, EvidenceKind


@dataclass(frozen=True, slots=True)
class NativeComponent:
    """A file that is, or holds, what belongs to the vendor of an accelerator."""

    path: str
    vendor: str
    #: `runtime`, `math`, `dnn`, ... as the catalogue calls it.
    role: str
    #: What was seen: the file itself (`bundled`, `tool`), or what lies in it (`static`,
    #: `device-code`).
    kinds: tuple[EvidenceKind, ...]
    confidence: Confidence
    size: int = 0
    #: Empty for a file that has none, or whose dynamic section was not read.
    soname: str = ""
    #: As its file name ends, else its soname: `12.8.90`, `12`; not always that of the toolkit.
    version: str = ""
    #: `.nv_fatbin: sm_75 sm_80`
    details: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    #: Whether an SBOM of the distribution names it; None where it has none.
    in_sbom: bool | None = None


@dataclass(frozen=True, slots=True)
class SbomComponent:
    """A component that an SBOM of a distribution names."""

    #: Package URL.
    purl: str
    #: Whether a library of the distribution has a name like it; None where names of files say
    #: nothing of it, as of crates.
    seen: bool | None
