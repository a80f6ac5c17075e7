"""Imports of a distribution's Python code from other distributions, and their owners.

An import that fails inside of another distribution fails all the same. If the tree has that one,
its own files decide; for a single wheel, the catalogue knows its requirements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.match import distribution
from buildmatrix.catalogue.model import DistributionMatch, Evidence
from buildmatrix.inventory.model import PythonImport
from buildmatrix.inventory.names import distribution_name
from buildmatrix.rules.model import Verdict

#: Parts of a module's name that a distribution's name may be made of: `cuda.bindings`.
_MOST_PARTS = 3


@dataclass(frozen=True, slots=True)
class Imported:
    """A statement that imports, and what the catalogue says about the distribution it leads to."""

    statement: PythonImport
    match: DistributionMatch

    @property
    def place(self) -> str:
        """`path:line`"""
        return f"{self.statement.path}:{self.statement.line}"


def imported(
    statements: Sequence[PythonImport], installed: Mapping[str, str], catalogue: Catalogue
) -> Mapping[str, tuple[Imported, ...]]:
    """By `name==version` of the importer, what it imports that the catalogue knows."""
    by_importer: dict[str, list[Imported]] = {}
    for python_import in statements:
        match = _match(python_import, installed, catalogue)
        if python_import.how == "missing" and python_import.provider is None:
            match = of_system(python_import.module, catalogue) or match
        if match is not None:
            by_importer.setdefault(python_import.owner, []).append(Imported(python_import, match))
    return {owner: tuple(imports) for owner, imports in by_importer.items()}


def _match(
    python_import: PythonImport, installed: Mapping[str, str], catalogue: Catalogue
) -> DistributionMatch | None:
    if python_import.provider is not None:
        name, _, version = python_import.provider.partition("==")
        return distribution(name, version, catalogue)
    parts = python_import.module.split(".")
    for count in range(min(len(parts), _MOST_PARTS), 0, -1):
        name = distribution_name("-".join(parts[:count]))
        match = distribution(name, installed.get(name, ""), catalogue)
        if match is not None:
            return match
    return None


def of_system(module: str, catalogue: Catalogue) -> DistributionMatch | None:
    """The backend whose system packages bring a module that no distribution has."""
    for owned in catalogue.modules.find(module.partition(".")[0]):
        return DistributionMatch(
            vendor=owned.vendor,
            backend=owned.backend,
            kind="native",
            weight="strong",
            toolkit=None,
            replace={},
            entry=owned.glob,
            confidence=owned.confidence,
        )
    return None


def runtimes(evidence: Sequence[Evidence]) -> frozenset[str]:
    """Return the backends with a runtime library in the tree, whichever distribution owns it."""
    return frozenset(
        item.backend
        for item in evidence
        if item.kind == "bundled" and item.role == "runtime" and item.weight == "strong"
    )


def carried(verdicts: Sequence[Verdict], statements: Sequence[PythonImport]) -> Iterator[Verdict]:
    """Yield the verdicts, with distributions broken that import a broken distribution."""
    reasons: dict[str, str] = {}
    broken = {
        item.owner
        for item in verdicts
        if item.failure is not None and item.failure.kind != "plugin"
    }
    unguarded = [
        statement
        for statement in statements
        if statement.how == "imported" and statement.provider is not None
    ]
    ahead = sorted(broken)
    for provider in ahead:  # grows while it is walked
        for python_import in unguarded:
            if python_import.provider == provider and python_import.owner not in broken:
                broken.add(python_import.owner)
                ahead.append(python_import.owner)
                name = provider.replace("==", " ")
                reasons[python_import.owner] = (
                    f"its import imports {name} ({python_import.path}:{python_import.line}), "
                    "which cannot be imported"
                )
    for verdict in verdicts:
        reason = reasons.get(verdict.owner)
        if reason is not None:
            verdict = replace(verdict, verdict="broken", reason=reason, by_others=True)
        yield verdict
