"""Evidence of one file, changed or removed by the exceptions of the catalogue."""

from __future__ import annotations

from collections.abc import Iterator

from buildmatrix.catalogue.format.entry import CatalogueEntry
from buildmatrix.catalogue.load import Catalogue, Owned
from buildmatrix.catalogue.lookup import distribution
from buildmatrix.catalogue.model import (
    Confidence,
    DistributionMatch,
    Evidence,
    EvidenceKind,
    Weight,
    Where,
)
from buildmatrix.catalogue.names import demangle, matches_any
from buildmatrix.inventory.model import Artefact, Binary, ClosedFile, PythonLoad

#: What is left of a confidence where something speaks against it.
LOWER: dict[Confidence, Confidence] = {"high": "medium", "medium": "low", "low": "low"}

File = Binary | Artefact | ClosedFile


class EvidenceMaker:
    """Joins facts with entries of one catalogue; remembers whose the owners of files are."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._owners: dict[str, DistributionMatch | None] = {}

    def evidence(
        self,
        kind: EvidenceKind,
        file: File | PythonLoad,
        owned: Owned[CatalogueEntry],
        *,
        name: str,
        detail: str,
        role: str,
        weight: Weight,
        where: Where = "image",
        toolkit: str | None = None,
        confidence: Confidence | None = None,
        offset: int | None = None,
        size: int = 0,
        architectures: tuple[str, ...] = (),
    ) -> Iterator[Evidence]:
        """The evidence, changed or removed by the exceptions that cover it.

        `name` is what exceptions know it by: the library that was named, or the file itself.
        """
        for exception in self._catalogue.exceptions:
            rule = exception.entry
            if (
                kind in rule.kinds
                and matches_any(rule.backends, owned.backend)
                and matches_any(rule.names, name)
                and matches_any(rule.files, demangle(file_name(file)))
                and matches_any(rule.paths, file.path)
            ):
                if rule.weight is not None:
                    weight, confidence = rule.weight, LOWER[confidence or owned.confidence]
                where = rule.where or where
        if weight == "neutral" or owned.vendor is None:
            return
        yield Evidence(
            kind=kind,
            vendor=owned.vendor,
            backend=owned.backend,
            path=file.path,
            detail=detail,
            role=role,
            confidence=confidence or owned.confidence,
            where=where,
            weight=weight,
            toolkit=toolkit or self._owner_toolkit(file.owner, owned.backend),
            offset=offset,
            size=size,
            distribution=file.owner,
            architectures=architectures,
        )

    def _owner_toolkit(self, owner: str | None, backend: str) -> str | None:
        """The toolkit of the owning distribution, where that is one of the same backend.

        `libcurand.so.10` is the same name in three toolkits; `nvidia-curand-cu12` is in one.
        """
        if owner is None:
            return None
        if owner not in self._owners:
            name, _, version = owner.partition("==")
            self._owners[owner] = distribution(name, version, self._catalogue)
        match = self._owners[owner]
        return match.toolkit if match is not None and match.backend == backend else None


def file_name(file: File | PythonLoad) -> str:
    """The last part of the path of a file."""
    return file.path.rpartition("/")[2]
