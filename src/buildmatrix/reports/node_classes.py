"""The report of `node-classes check`: classes against a cluster, as data and text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from buildmatrix.base.text import count, listing
from buildmatrix.reports.json_form import THIS_TOOL, Tool
from buildmatrix.reports.sections import state_word
from buildmatrix.reports.terminal import Painter, wrapped

# Data


#: `undecided`: a machine does not say what its class says of it. `no-nodes`: none is of the class.
CheckState = Literal["ok", "drift", "undecided"]
ClassState = Literal["ok", "drift", "undecided", "no-nodes"]


@dataclass(frozen=True, slots=True)
class NodeDifference:
    """A field in which machines differ from their class."""

    state: Literal["drift", "undecided"]
    #: Name in the specification: `driver`, `container-runtime`, `labels.KEY`.
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
    #: True if the specification has this backend; other teams may have the others.
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


# Text


_INDENT = "    "


def render(check: NodeClassCheck, *, width: int, color: bool) -> str:
    """Each class with what differs, the machines of no class, and a summary."""
    return "\n".join(_lines(check, max(width, 40), Painter(color))) + "\n"


def _lines(check: NodeClassCheck, width: int, paint: Painter) -> Iterator[str]:
    for item in check.classes:
        yield from _class(item, width, paint)
    for machines in check.uncovered:
        yield from _uncovered(machines, width, paint)
    if check.unknown:
        keys = (f"{key} ({count(number, 'node')})" for key, number in check.unknown.items())
        text = f"labels and resources that are not known: {listing(keys, 20)}"
        yield from wrapped(text, width, "", _INDENT)
    states = [item.state for item in check.classes]
    parts = [
        f"{states.count(state)} {state_word(state)}"
        for state in get_args(ClassState)
        if state in states
    ]
    classes = f"{len(states)} node class{'es' if len(states) != 1 else ''}"
    yield f"{count(check.nodes, 'node')}, {classes}: {', '.join(parts)}"


def _class(item: ClassCheck, width: int, paint: Painter) -> Iterator[str]:
    word = state_word(item.state)
    about = f"{item.name} ({item.backend}, {item.place}): {count(item.nodes, 'node')}"
    first, *rest = wrapped(f"{word:9}  {about}", width, "", _INDENT)
    yield paint.state(item.state) + first[len(word) :]
    yield from rest
    for difference in item.differences:
        yield from wrapped(_difference(difference), width, _INDENT, _INDENT * 2)
    if item.not_compared:
        text = f"not compared, as these machines do not report it: {listing(item.not_compared)}"
        yield from wrapped(text, width, _INDENT, _INDENT * 2)


def _difference(item: NodeDifference) -> str:
    nodes = f"{count(len(item.nodes), 'node')}: {listing(item.nodes, 5)}"
    if item.state == "undecided":
        return f"{item.field} should be {item.expected} but is not reported by {nodes}"
    return f"{item.field} should be {item.expected} but is {item.seen or 'missing'} on {nodes}"


def _uncovered(item: Uncovered, width: int, paint: Painter) -> Iterator[str]:
    what = ", ".join(item.products or item.resources) or "devices"
    other = "" if item.in_specification else ", which the specification does not have"
    text = (
        f"no class  {count(len(item.nodes), 'node')} of {item.backend}{other}: {what} "
        f"({listing(item.nodes, 5)})"
    )
    first, *rest = wrapped(text, width, "", _INDENT)
    yield paint(first, "red" if item.in_specification else "dim")
    yield from rest
