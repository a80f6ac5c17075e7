"""What is told of a file; the JSON output has these names."""

from __future__ import annotations

from dataclasses import dataclass

from buildmatrix.catalogue.model import Evidence
from buildmatrix.inventory.model import Artefact, Binary, Distribution, Unread

SCHEMA = "buildmatrix/inspect/1"


@dataclass(frozen=True, slots=True)
class Imports:
    """Symbols that a binary takes from one library."""

    #: NEEDED entry whose symbol versions the symbols ask for; None for symbols without a version,
    #: which ELF does not bind to a library.
    library: str | None
    #: Demangled where they are mangled names of C++ or Rust, sorted.
    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """What one vendor has in a wheel in one role."""

    vendor: str
    backend: str
    role: str
    #: Bytes of the files that are the vendor's, and of its device code inside of others.
    size: int
    files: int
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Inspection:
    """Everything about one file: an ELF object, a file of device code, or a wheel."""

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
    #: Only for wheels, largest first.
    shares: tuple[Share, ...] = ()
    #: What could not be read; what else is here stands.
    unread: tuple[Unread, ...] = ()
