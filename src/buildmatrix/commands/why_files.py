"""File half of the graph: owners, linkers and openers of files."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from buildmatrix.base.text import listing
from buildmatrix.catalogue.model import demangle, opened_library
from buildmatrix.facts.inventory.listing import LinkedPaths
from buildmatrix.facts.inventory.model import Binary, Inventory, PythonLoad
from buildmatrix.facts.python_imports import Reach
from buildmatrix.reports.why import Edge, Node, node_id

if TYPE_CHECKING:
    from buildmatrix.facts.loader import Needed, Resolution

#: Text for the reach of loads in Python code.
_REACH_TEXTS: Mapping[Reach, str] = {
    "import": "loaded on import",
    "chosen": "one of several for an import",
    "guarded": "tried on import",
    "lazy": "only when something calls it",
    "unknown": "",
}
#: Matching files of one call with a `*` in its name.
MOST_MATCHES = 50


class FileGraph(Struct, frozen=True):
    """The file half of a graph."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    #: Files without a distribution that no other file leads to.
    loose: tuple[str, ...]


def file_id(path: str) -> str:
    """Return the id of a file's node."""
    return f"file:{path}"


def library_id(name: str) -> str:
    """Return the id of the node for a name without a file."""
    return f"library:{name}"


def build_file_graph(
    inventory: Inventory, resolution: Resolution, packages: Iterable[Edge] = ()
) -> FileGraph:
    """Return the nodes of all relevant files, and all edges from or to them.

    `packages` has the edges between distributions: a process may lack distributions that its own
    does not require.
    """
    return _FileGraphBuilder(inventory, resolution, _RequirementTest(packages)).build()


class _RequirementTest:
    """Test for distributions that are always present with another one: its requirements."""

    def __init__(self, edges: Iterable[Edge]) -> None:
        self._out: dict[str, list[str]] = {}
        for edge in edges:
            if edge.kind in ("requires", "imports"):
                self._out.setdefault(edge.source, []).append(edge.target)
        self._reachable: dict[str, frozenset[str]] = {}

    def __call__(self, owner: str | None, other: str | None) -> bool:
        if owner is None or other is None or owner == other:
            return True
        if owner not in self._reachable:
            ahead = [owner]
            seen = {owner}
            for id in ahead:  # grows during the loop
                new = [target for target in self._out.get(id, ()) if target not in seen]
                seen.update(new)
                ahead += new
            self._reachable[owner] = frozenset(seen)
        return other in self._reachable[owner]


class _FileGraphBuilder:
    def __init__(
        self, inventory: Inventory, resolution: Resolution, brings: _RequirementTest
    ) -> None:
        self._inventory = inventory
        self._brings = brings
        self._resolution = resolution
        self._origins: Mapping[str, int] = inventory.origins
        self._nodes: dict[str, Node] = {}
        self._edges: list[Edge] = []
        self._names = _list_names(inventory)
        self._packages = _describe_packages(inventory)
        #: Name to paths of the files that a loader finds by it.
        self._files_by_name: dict[str, list[str]] = {}
        for path, names in self._names.items():
            for name, is_own in names.items():
                if is_own:
                    self._files_by_name.setdefault(name, []).append(path)

    def build(self) -> FileGraph:
        for binary in self._inventory.binaries:
            self._add_file(binary.path, binary.size, binary.owner)
            reached = _REACH_TEXTS[binary.reach]
            self._add_holder(binary.owner, file_id(binary.path), reached, binary.reached_from)
        for artefact in self._inventory.artefacts:
            self._add_file(artefact.path, artefact.size, artefact.owner)
            self._add_holder(artefact.owner, file_id(artefact.path))
        for closed in self._inventory.closed:
            if file_id(closed.path) not in self._nodes:
                self._add_file(closed.path, closed.size, closed.owner)
                self._add_holder(closed.owner, file_id(closed.path), "not read")
        # Paths that several distributions list have further owners.
        for shared in self._inventory.shared_paths:
            id = file_id(shared.path)
            for owner in shared.owners if id in self._nodes else ():
                if _owner_id(owner) != self._nodes[id].owner:
                    self._add_holder(owner, id, "also in the RECORD of another distribution")
        for needed in self._resolution.needed:
            self._edges += self._find_needs(needed)
        for binary in self._inventory.loadable:
            if not binary.elf.needed:
                self._edges += self._find_linked_names(binary)
        for needed in self._resolution.preloaded:
            target = (
                file_id(needed.path) if needed.path is not None else self._add_library(needed.name)
            )
            self._edges.append(
                Edge("preloads", file_id(needed.binary), target, needed.name, rule=needed.rule)
            )
        for binary in self._inventory.loadable:
            self._edges += self._find_opens(binary)
        for load in self._inventory.python_loads:
            self._add_python_load(load)
        led_to = {edge.target for edge in self._edges}
        loose = (node.id for node in self._nodes.values() if node.kind in ("file", "python"))
        return FileGraph(
            tuple(self._nodes.values()),
            tuple(self._edges),
            tuple(sorted(id for id in loose if id not in led_to)),
        )

    def _add_file(self, path: str, size: int, owner: str | None) -> None:
        self._nodes[file_id(path)] = Node(
            file_id(path),
            "file",
            path,
            size=size,
            owner=_owner_id(owner),
            layer=self._origins.get(path),
            names=tuple(self._names.get(path, (path.rpartition("/")[2],))),
            text=self._packages.get(self._inventory.packaged.get(path, ""), ""),
        )

    def _add_holder(
        self, owner: str | None, node: str, text: str = "", at: str | None = None
    ) -> None:
        source = _owner_id(owner)
        if source is not None:
            self._edges.append(Edge("holds", source, node, text, at=at))

    def _add_library(self, name: str) -> str:
        id = library_id(name)
        if id not in self._nodes:
            self._nodes[id] = Node(id, "library", name, names=tuple({name: 0, demangle(name): 0}))
        return id

    def _find_needs(self, needed: Needed) -> Iterator[Edge]:
        source = file_id(needed.binary)
        if needed.path is not None:
            yield Edge(
                "needs",
                source,
                file_id(needed.path),
                needed.name,
                rule=needed.rule,
                by=needed.by,
                folder=needed.place and needed.place.rpartition("/")[0],
            )
            return
        # Excludes files of that name that other distributions bundle for themselves.
        owner = self._nodes[source].owner
        near = [
            file_id(path)
            for path in needed.anywhere
            if needed.preloaded_from or self._brings(owner, self._nodes[file_id(path)].owner)
        ]
        for target in near or [self._add_library(needed.name)]:
            yield Edge(
                "needs",
                source,
                target,
                needed.name,
                searched=needed.searched,
                at=needed.preloaded_from,
                certain=not near,
            )

    def _find_linked_names(self, binary: Binary) -> Iterator[Edge]:
        """Yield links of a partly read file: names without a search path."""
        source = file_id(binary.path)
        owner = _owner_id(binary.owner)
        for name in binary.elf.linked_names:
            having = (file_id(path) for path in self._files_by_name.get(name, ()))
            near = [id for id in having if self._brings(owner, self._nodes[id].owner)]
            for target in near or [self._add_library(name)]:
                if target != source:
                    yield Edge("needs", source, target, name, rule="names")

    def _find_opens(self, binary: Binary) -> Iterator[Edge]:
        """Yield names in the data of a file, except those it needs and its own."""
        source = file_id(binary.path)
        excluded = {*binary.elf.needed, *self._names.get(binary.path, ())}
        for note in binary.elf.dlopen_notes:
            for name in note.sonames:
                if name not in excluded:
                    excluded.add(name)
                    for target in self._targets(name):
                        text = f"{name} ({note.priority})"
                        yield Edge("dlopen-note", source, target, text, certain=False)
        for literal in sorted(binary.elf.literals, key=lambda item: not item.exact):
            name = literal.text.rpartition("/")[2]
            if name in excluded or not name:
                continue
            excluded.add(name)
            for target in self._targets(name):
                if target != source:
                    text = literal.text if literal.exact else f"{literal.text} (inside other text)"
                    yield Edge("dlopen", source, target, text, offset=literal.offset, certain=False)

    def _targets(self, name: str) -> list[str]:
        return [file_id(path) for path in self._files_by_name.get(name, ())] or [
            self._add_library(name)
        ]

    def _add_python_load(self, load: PythonLoad) -> None:
        targets: dict[str, str] = {}
        for name in load.names:
            for target in self._match_files(load, name):
                targets.setdefault(target, name)
        if not targets:
            return
        id = f"python:{load.path}"
        if id not in self._nodes:
            owner, layer = _owner_id(load.owner), self._origins.get(load.path)
            self._nodes[id] = Node(id, "python", load.path, owner=owner, layer=layer)
            self._add_holder(load.owner, id)
        for target, name in targets.items():
            self._edges.append(
                Edge(
                    "python",
                    id,
                    target,
                    f"{load.call}({name})",
                    condition=_REACH_TEXTS[load.reach],
                    at=f"{load.path}:{load.line}",
                    certain=load.reach == "import" and "*" not in name,
                )
            )

    def _match_files(self, load: PythonLoad, text: str) -> Iterable[str]:
        """Return the nodes of the files that a call refers to, or of a name without a file."""
        name = opened_library(load.call, text)
        if name is None or load.call in ("register_fake", "impl_abstract"):
            return ()
        if "*" not in text:
            if "/" in text:
                path = text.lstrip("./")
                fitting = [
                    item for item in self._names if item == path or item.endswith(f"/{path}")
                ]
                if fitting:
                    return [file_id(path) for path in fitting[:MOST_MATCHES]]
            if name in self._files_by_name:
                return self._targets(name)
            return [self._add_library(name)] if ".so" in name else ()
        # `*.so` matches any library, and so identifies none.
        if ".so" not in name or not re.search(
            r"\w{3}", name.removeprefix("lib").partition(".so")[0]
        ):
            return ()
        # Most patterns match nothing, and most names lack a pattern's longest piece.
        piece = max(re.split(r"[*?]|\[[^\]]*\]", name), key=len)
        pattern = "*/" + text.lstrip("*/")
        fitting = [
            path
            for path in self._names
            if piece in path and fnmatch.fnmatchcase(f"/{path}", pattern)
        ] or [
            path
            for other, paths in self._files_by_name.items()
            if piece in other and fnmatch.fnmatchcase(other, name)
            for path in paths
        ]
        return [file_id(path) for path in fitting[:MOST_MATCHES]] or [self._add_library(name)]


def _list_names(inventory: Inventory) -> dict[str, dict[str, bool]]:
    """Map the path of each library to all its names, including links to it.

    True for actual names; False for the name before a wheel builder added a hash: users refer to it
    by that, but no loader finds it so.
    """
    by_path: dict[str, dict[str, bool]] = {}

    def add(path: str, name: str | None) -> None:
        if name:
            names = by_path.setdefault(path, {})
            names[name] = True
            # Twice: a bundled library may itself come from a wheel with bundled libraries.
            names.setdefault(demangle(name), False)
            names.setdefault(demangle(demangle(name)), False)

    for binary in inventory.binaries:
        if binary.container is not None:
            # Users refer to it by name, but no loader finds it so.
            names = (binary.path.rpartition("/")[2], binary.elf.soname)
            by_path[binary.path] = dict.fromkeys(filter(None, names), False)
            continue
        add(binary.path, binary.path.rpartition("/")[2])
        add(binary.path, binary.elf.soname)
    for closed in inventory.closed:
        add(closed.path, closed.path.rpartition("/")[2])
    paths = LinkedPaths(by_path, {link.path: link.target for link in inventory.links})
    for link in inventory.links:
        target = paths.file(link.path)
        if target is not None:
            add(target, link.path.rpartition("/")[2])
            # Users who give a path may mean this one, too.
            by_path[target].setdefault(link.path, False)
    return by_path


def _describe_packages(inventory: Inventory) -> dict[str, str]:
    """Map `name version` of operating system packages to a description."""
    requirers: dict[str, list[str]] = {}
    vendors: dict[str, str] = {}
    for package in inventory.system_packages:
        vendors[f"{package.name} {package.version}"] = package.vendor
        for name in package.requires:
            requirers.setdefault(name, []).append(package.name)
    descriptions: dict[str, str] = {}
    for label in set(inventory.packaged.values()):
        vendor = f" of {vendors[label]}" if vendors.get(label) else ""
        names = requirers.get(label.partition(" ")[0])
        required = f", required by {listing(names)}" if names else ""
        descriptions[label] = f"the system's package {label}{vendor}{required}"
    return descriptions


def _owner_id(owner: str | None) -> str | None:
    return None if owner is None else node_id(owner.partition("==")[0])
