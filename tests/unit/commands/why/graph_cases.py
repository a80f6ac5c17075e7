"""Small trees, as inventories, and what is asked of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from buildmatrix.catalogue.load import load
from buildmatrix.catalogue.match import evidence
from buildmatrix.commands.why_answer import find_nodes, list_vendor_words, make_answer
from buildmatrix.commands.why_graph import join_graph
from buildmatrix.facts.elf.model import Elf, Literal, Mark
from buildmatrix.facts.inventory.model import Binary, Distribution, Inventory
from buildmatrix.facts.loader import resolve
from buildmatrix.locks.model import Lock, Package
from buildmatrix.reports import why_text
from buildmatrix.reports.why import Answer, AnsweredNode, Graph

SITE = "lib/python3.11/site-packages"


def elf(
    *needed: str,
    soname: str | None = None,
    runpath: Iterable[str] = (),
    rpath: Iterable[str] = (),
    literals: Iterable[str] = (),
    marks: Iterable[str] = (),
    **more: object,
) -> Elf:
    return Elf(
        64, True, "x86_64", "dyn", soname=soname, needed=needed, runpath=tuple(runpath),
        rpath=tuple(rpath),
        literals=tuple(Literal(text, 16, ".rodata", exact=True) for text in literals),
        marks=tuple(Mark(name, 4096) for name in marks),
        **more,
    )  # fmt: skip


def binary(path: str, what: Elf, owner: str | None = None, size: int = 1000) -> Binary:
    """A file below site-packages, owned by the distribution `owner` (`name==version`)."""
    return Binary(f"{SITE}/{path}" if owner else path, size, what, owner)


def distribution(name: str, *requires: str, version: str = "1.0", **more: object) -> Distribution:
    return Distribution(name, version, f"{SITE}/{name}-{version}.dist-info", requires, **more)


def lock(**via: Iterable[str]) -> Lock:
    """A lock: distribution (`_` for `-`) → who asked for it."""
    packages = (
        Package(name.replace("_", "-"), "1.0", None, (), False, tuple(askers))
        for name, askers in via.items()
    )
    return Lock(Path("pylock.toml"), tuple(packages), "", "")


def graph_of(
    inventory: Inventory, locked: Lock | None = None, lines: Mapping[str, str] | None = None
) -> Graph:
    found = evidence(inventory, load())
    return join_graph(inventory, resolve(inventory), found, load(), locked, lines or {})


def why(
    inventory: Inventory,
    library: str,
    locked: Lock | None = None,
    lines: Mapping[str, str] | None = None,
    *,
    every: bool = False,
    subjects: int = 6,
    most: int = 100,
) -> Answer:
    graph = graph_of(inventory, locked, lines)
    question = find_nodes(graph, library, evidence(inventory, load()), list_vendor_words(load()))
    return make_answer("dir:/x", graph, question, every=every, subjects=subjects, most=most)


def one(answered: Answer) -> AnsweredNode:
    (subject,) = answered.subjects
    return subject


def labels(subject: AnsweredNode, graph: Graph, number: int = 0) -> list[str]:
    """The shortest chain, each step as people call it, without the folder for packages."""
    chain = subject.chains[number]
    return [graph.nodes[id].label.removeprefix(f"{SITE}/") for id in chain.ids]


def text_of(answered: Answer, width: int = 100) -> str:
    return why_text.render(answered, width=width, color=False)


def flat(answered: Answer) -> str:
    """The text on one line: where it is wrapped does not matter."""
    return " ".join(text_of(answered).split())
