"""Code inside of files that belongs to somebody else: linked statically, or for a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.model import Evidence
from buildmatrix.commands.why.files import file_id
from buildmatrix.elf.model import Section
from buildmatrix.inventory.model import Inventory
from buildmatrix.reports.why.graph import Edge, Embedded, Node, node_id


def embedded(
    evidence: Iterable[Evidence], catalogue: Catalogue, inventory: Inventory
) -> tuple[list[Node], list[Edge]]:
    """A node for each copy that the evidence proves, below the file that holds it."""
    sections = {binary.path: binary.elf.sections for binary in inventory.binaries}
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    shared = {owned.entry.name: owned.entry.shared for owned in catalogue.static}
    for item in evidence:
        if item.kind not in ("static", "device-code"):
            continue
        name, marks = _name_and_marks(item)
        id = f"embedded:{item.backend}:{name}:{item.path}"
        if id in nodes:
            continue
        names = [name, *(glob.partition("*")[0].rstrip(".") for glob in shared.get(name, ()))]
        copy = Embedded(
            item.kind,
            item.vendor,
            item.backend,
            name,
            path=item.path,
            section=_section(item, sections),
            offset=item.offset,
            size=item.size,
            architectures=item.architectures,
            marks=marks,
        )
        nodes[id] = Node(
            id,
            "embedded",
            f"{name}, linked statically" if item.kind == "static" else f"device code: {name}",
            size=item.size,
            layer=inventory.origins.get(item.path),
            owner=item.distribution and node_id(item.distribution.partition("==")[0]),
            names=tuple(names) if item.kind == "static" else (),
            embedded=copy,
        )
        edges.append(Edge("embeds", file_id(item.path), id, item.detail, offset=item.offset))
    return list(nodes.values()), edges


def _name_and_marks(item: Evidence) -> tuple[str, tuple[str, ...]]:
    """Name and marks, which evidence has as one text: `cudart (mark, mark)`."""
    if item.kind == "static":
        name, _, marks = item.detail.partition(" (")
        return name, tuple(filter(None, marks.rstrip(")").split(", ")))
    return f"{item.backend} {item.detail.partition(':')[0]}", ()


def _section(item: Evidence, sections: Mapping[str, tuple[Section, ...]]) -> str | None:
    """The section that device code has, or in which the first mark of a copy lies."""
    if item.kind != "static":
        return item.detail.partition(":")[0]
    if item.offset is None:
        return None
    return next(
        (
            section.name
            for section in sections.get(item.path, ())
            if not section.nobits and section.offset <= item.offset < section.offset + section.size
        ),
        None,
    )
