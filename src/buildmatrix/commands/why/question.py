"""Meaning of LIBRARY in a graph: the nodes of a question.

A backend or a vendor stands for all its nodes; a path, a soname, a distribution or a glob for nodes
with that name. `libcudart` also matches `libcudart.so.12`, and `cudart` matches `libcudart`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from buildmatrix.catalogue.model import Evidence
from buildmatrix.catalogue.names import demangle, matches
from buildmatrix.commands.why.files import file_id, library_id
from buildmatrix.inventory.model import ShadowedFiles
from buildmatrix.inventory.names import distribution_name
from buildmatrix.reports.why.model import Graph, Node, Question, node_id
from buildmatrix.reports.why.words import library_stem

if TYPE_CHECKING:
    from buildmatrix.catalogue.load import Catalogue

#: Word in lower case to `backend` or `vendor`, and its backends.
Vendors = Mapping[str, tuple[str, tuple[str, ...]]]

#: Number of suggested names.
MOST_NEAR = 8
_GLOB = re.compile(r"[*?\[]")
#: A version in front of `.so`: `libyaml-0.so.2`, `libglib-2.0.so.0`.
_VERSION = re.compile(r"-[0-9][0-9.]*\.so\b")
#: Order of answers: loaded files, missing ones, copies, then nodes that only have the name.
_ORDER = ("file", "library", "embedded", "distribution", "python", "line")


def find_nodes(graph: Graph, text: str, evidence: Iterable[Evidence], words: Vendors) -> Question:
    """Find the nodes that `text` means; `evidence` has those of backends and vendors."""
    word = text.strip()
    owner = words.get(word.lower())
    if owner is not None:
        kind, backends = owner
        return Question(word, kind, _sort_nodes(graph, _find_owned(graph, evidence, backends)))
    if "/" in word:
        path = word.removeprefix("./").lstrip("/")
        nodes = [node for node in graph.nodes.values() if _has_path(path, node)]
        kind = "path"
    else:
        kind = "glob" if _GLOB.search(word) else "name"
        distribution = graph.nodes.get(node_id(distribution_name(word)))
        if distribution is not None:
            # `torch` is the distribution; its library is `libtorch`.
            return Question(
                word, "distribution", (distribution,), buried=_find_shadowed(graph, word)
            )
        nodes = [node for node in graph.nodes.values() if _matches_node(word, node)]
    ids = [node.id for node in nodes]
    near = () if nodes else _suggest_names(graph, word)
    return Question(word, kind, _sort_nodes(graph, ids), near, _find_shadowed(graph, word))


def list_vendor_words(catalogue: Catalogue) -> Vendors:
    """Return the words for backends and vendors in this catalogue."""
    words: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, entry in catalogue.backends.items():
        if entry.vendor is not None:
            kind, names = words.get(entry.vendor, ("vendor", ()))
            words[entry.vendor] = kind, (*names, name)
    for name, entry in catalogue.backends.items():
        for word in (name, *entry.aliases):
            words[word] = "backend", (name,)
    return words


def _find_owned(
    graph: Graph, evidence: Iterable[Evidence], backends: tuple[str, ...]
) -> Iterable[str]:
    """Yield the ids of everything that belongs to one of `backends`."""
    for item in evidence:
        if item.backend not in backends:
            continue
        if item.kind in ("bundled", "tool"):
            yield file_id(item.path)
        elif item.kind in ("static", "device-code"):
            for edge in graph.out.get(file_id(item.path), ()):
                copy = graph.nodes[edge.target].embedded if edge.kind == "embeds" else None
                if copy is not None and copy.backend == item.backend:
                    yield edge.target
        elif item.kind == "declared" and item.distribution is not None:
            yield node_id(item.distribution.partition("==")[0])
        elif item.kind in ("needed", "dlopen", "python-dlopen"):
            # If the name leads to a file, that file is evidence itself (`bundled`).
            yield library_id(item.detail.rpartition("/")[2])


def _has_path(path: str, node: Node) -> bool:
    """True if a file is at `path`, as a glob or a whole path, or ends with it."""
    if node.kind not in ("file", "python"):
        return False
    names = (node.label, *(name for name in node.names if "/" in name))
    return any(item == path or item.endswith(f"/{path}") or matches(path, item) for item in names)


def _find_shadowed(graph: Graph, word: str) -> tuple[ShadowedFiles, ...]:
    """Return hidden files by that name: libraries, packages, and metadata of distributions.

    At most a dozen names are known per folder.
    """
    return tuple(buried for buried in graph.buried if _matches_shadowed(word, buried))


def _matches_shadowed(word: str, buried: ShadowedFiles) -> bool:
    if "/" in word:
        path = word.removeprefix("./").strip("/")
        inside = (f"{buried.path}/{name}" for name in buried.names)
        return any(
            at == path or at.endswith(f"/{path}") or matches(path, at)
            for at in (buried.path, *inside)
        )
    last = buried.path.rpartition("/")[2]
    metadata = re.fullmatch(r"(.+?)(?:-[^-]+)?\.(?:dist|egg)-info", last)
    package = distribution_name(metadata[1] if metadata else last.removesuffix(".libs"))
    return matches(normalize_glob(word), package) or any(
        _matches_library(word, name) for name in buried.names
    )


def _matches_node(word: str, node: Node) -> bool:
    if node.kind == "line":
        return False
    if node.kind == "distribution":
        return any(matches(normalize_glob(word), name) for name in node.names)
    return any(_matches_library(word, name) for name in node.names)


def normalize_glob(word: str) -> str:
    """Return `word` as a normalized name (PEP 503), with its wildcards."""
    return "".join(
        part if _GLOB.search(part) else distribution_name(part)
        for part in re.split(r"(\*|\?|\[[^\]]*\])", word)
    )


def _matches_library(word: str, name: str) -> bool:
    """True if `name` is a name of the library `word`; a shorter version matches all."""
    if _GLOB.search(word):
        return matches(word, name)
    stem = demangle(word)
    return any(
        name == form
        or (name.startswith(f"{form}.") and ".so" in name)
        or (name.startswith(f"{form}-") and _VERSION.match(name, len(form)) is not None)
        for form in (word, stem, f"lib{stem}")
    )


def _sort_nodes(graph: Graph, ids: Iterable[str]) -> tuple[Node, ...]:
    nodes = [graph.nodes[id] for id in dict.fromkeys(ids) if id in graph.nodes]
    # A library with many linkers comes before an unused file of the same folder.
    return tuple(
        sorted(
            nodes,
            key=lambda node: (
                _ORDER.index(node.kind),
                -sum(edge.kind != "holds" for edge in graph.into.get(node.id, ())),
                -node.size,
                node.label,
            ),
        )
    )


def _suggest_names(graph: Graph, word: str) -> tuple[str, ...]:
    """Return names with the word's own part, then those with a similar spelling."""
    core = library_stem(word)
    names: Mapping[str, None] = {
        name: None
        for node in graph.nodes.values()
        for name in node.names
        if node.kind != "line" and name
    }
    inside = [name for name in names if len(core) >= 3 and core in name.lower()]
    stems: dict[str, list[str]] = {}
    for name in names:
        stems.setdefault(library_stem(name), []).append(name)
    close = difflib.get_close_matches(library_stem(word), list(stems), MOST_NEAR, 0.7)
    alike = [name for stem in close for name in stems[stem]]
    inside.sort(key=lambda name: (len(name), name))
    return tuple(dict.fromkeys((*inside[:MOST_NEAR], *alike)))[:MOST_NEAR]
