"""Verdicts of a tree by itself, as tests ask for them."""

from __future__ import annotations

from collections.abc import Sequence

from buildmatrix.catalogue.load import Catalogue, load
from buildmatrix.catalogue.model import Evidence
from buildmatrix.facts.inventory.model import Inventory
from buildmatrix.facts.loader import Resolution, resolve
from buildmatrix.judge.model import Verdict
from buildmatrix.judge.tree import TreeView
from buildmatrix.judge.verdicts import verdicts
from buildmatrix.matrix.model import Policy


def tree_verdicts(
    backend: str,
    inventory: Inventory,
    evidence: Sequence[Evidence],
    policy: Policy,
    catalogue: Catalogue | None = None,
    resolution: Resolution | None = None,
    line: str | None = None,
) -> tuple[Verdict, ...]:
    """One verdict per installed distribution, by what lies in the tree alone."""
    catalogue = catalogue or load()
    resolution = resolution or resolve(inventory)
    tree = TreeView(backend, line, inventory, evidence, policy, catalogue, resolution)
    return verdicts(tree)
