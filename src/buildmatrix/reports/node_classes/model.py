"""Node classes against the machines that there are, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from buildmatrix.reports.json_form import THIS_TOOL, Tool

#: `undecided`: a machine does not say what its class says of it. `no-nodes`: none is of the class.
CheckState = Literal["ok", "drift", "undecided"]
ClassState = Literal["ok", "drift", "undecided", "no-nodes"]


@dataclass(frozen=True, slots=True)
class NodeDifference:
    """One field in which machines are not what their class says."""

    state: Literal["drift", "undecided"]
    #: As the specification calls it: `driver`, `container-runtime`, `labels.KEY`.
    field: str
    #: As the class has it, and as the machines say it; empty where they do not.
    expected: str
    seen: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCheck:
    """One class, and the machines that are of it."""

    name: str
    backend: str
    #: Where it is written: file and line.
    place: str
    state: ClassState
    #: How many there are.
    nodes: int
    differences: tuple[NodeDifference, ...] = ()
    #: Fields of the class that nothing in the files says of these machines.
    not_compared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncovered:
    """Machines with devices that are of no class."""

    backend: str
    #: Whether the specification has this backend; other teams may have the others.
    in_specification: bool
    products: tuple[str, ...]
    resources: tuple[str, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClassCheck:
    """Result of `node-classes check`."""

    schema: Literal["buildmatrix/node-classes/1"] = "buildmatrix/node-classes/1"
    tool: Tool = THIS_TOOL
    specification: str
    #: The files that list the machines.
    sources: tuple[str, ...]
    state: CheckState
    #: How many machines were listed.
    nodes: int
    classes: tuple[ClassCheck, ...]
    uncovered: tuple[Uncovered, ...] = ()
    #: Labels and resources that look like an accelerator's, and of which nothing is known → how
    #: many machines have them.
    unknown: Mapping[str, int]
