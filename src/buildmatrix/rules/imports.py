"""What a distribution's Python code imports from other distributions, and whose those are.

An import that fails inside of another distribution fails all the same. Where the tree holds that
one, its own files tell; of one wheel alone, the catalogue knows what it requires.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.match import distribution
from buildmatrix.catalogue.model import DistributionMatch, Evidence
from buildmatrix.catalogue.names import normalise
from buildmatrix.inventory.model import PythonImport
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
    found: dict[str, list[Imported]] = {}
    for one in statements:
        match = _match(one, installed, catalogue)
        if match is not None:
            found.setdefault(one.owner, []).append(Imported(one, match))
    return {owner: tuple(those) for owner, those in found.items()}


def _match(
    one: PythonImport, installed: Mapping[str, str], catalogue: Catalogue
) -> DistributionMatch | None:
    if one.provider is not None:
        name, _, version = one.provider.partition("==")
        return distribution(name, version, catalogue)
    parts = one.module.split(".")
    for count in range(min(len(parts), _MOST_PARTS), 0, -1):
        name = normalise("-".join(parts[:count]))
        match = distribution(name, installed.get(name, ""), catalogue)
        if match is not None:
            return match
    return None


def runtimes(evidence: Sequence[Evidence]) -> frozenset[str]:
    """Backends whose runtime library lies in the tree, whoever brought it."""
    return frozenset(
        one.backend
        for one in evidence
        if one.kind == "bundled" and one.role == "runtime" and one.weight == "strong"
    )


def carried(verdicts: Sequence[Verdict], statements: Sequence[PythonImport]) -> Iterator[Verdict]:
    """The verdicts, with those broken too whose import runs into a distribution that is broken."""
    reasons: dict[str, str] = {}
    broken = {
        f"{one.name}=={one.version}"
        for one in verdicts
        if one.failure is not None and one.failure.kind != "plugin"
    }
    unguarded = [one for one in statements if one.how == "imported" and one.provider is not None]
    ahead = sorted(broken)
    for provider in ahead:  # grows while it is walked
        for one in unguarded:
            if one.provider == provider and one.owner not in broken:
                broken.add(one.owner)
                ahead.append(one.owner)
                name = provider.replace("==", " ")
                reasons[one.owner] = (
                    f"its import imports {name} ({one.path}:{one.line}), which cannot be imported"
                )
    for verdict in verdicts:
        reason = reasons.get(f"{verdict.name}=={verdict.version}")
        if reason is not None:
            verdict = replace(verdict, verdict="broken", reason=reason, by_others=True)
        yield verdict
