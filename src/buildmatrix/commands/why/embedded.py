"""Foreign code inside files: statically linked, or for a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from buildmatrix.catalogue.load import Catalogue
from buildmatrix.catalogue.model import Evidence
from buildmatrix.commands.why.files import file_id
from buildmatrix.elf.model import Section
from buildmatrix.inventory.model import Inventory
from buildmatrix.reports.why.model import Edge, Embedded, Node, node_id


def find_embedded(
    evidence: Iterable[Evidence], catalogue: Catalogue, inventory: Inventory
) -> tuple[list[Node], list[Edge]]:
    """Return a node for each copy in the evidence, below the file that holds it."""
    sections = {binary.path: binary.elf.sections for binary in inventory.binaries}
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    shared = {owned.entry.name: owned.entry.shared for owned in catalogue.static}
    for item in evidence:
        if item.kind not in ("static", "device-code"):
            continue
        name, marks = _split_name(item)
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
            section=_find_section(item, sections),
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


def _split_name(item: Evidence) -> tuple[str, tuple[str, ...]]:
    """Split evidence text into name and marks: `cudart (mark, mark)`."""
    if item.kind == "static":
        name, _, marks = item.detail.partition(" (")
        return name, tuple(filter(None, marks.rstrip(")").split(", ")))
    return f"{item.backend} {item.detail.partition(':')[0]}", ()


def _find_section(item: Evidence, sections: Mapping[str, tuple[Section, ...]]) -> str | None:
    """Return the section of device code, or of the first mark of a copy."""
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
