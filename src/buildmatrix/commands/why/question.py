"""What LIBRARY means in a graph: which nodes somebody asks about.

A backend or a vendor stands for everything that is its own; a path, a soname, a distribution or a
glob for what has that name. `libcudart` is `libcudart.so.12` too, and `cudart` is `libcudart`.
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
from buildmatrix.reports.why.graph import Graph, Node, node_id
from buildmatrix.reports.why.model import Question
from buildmatrix.reports.why.words import library_stem

if TYPE_CHECKING:
    from buildmatrix.catalogue.load import Catalogue

#: Word in lower case → `backend` or `vendor`, and the backends that it means.
Vendors = Mapping[str, tuple[str, tuple[str, ...]]]

#: Names that nearly match, at most.
MOST_NEAR = 8
_GLOB = re.compile(r"[*?\[]")
#: A version in front of `.so`: `libyaml-0.so.2`, `libglib-2.0.so.0`.
_VERSION = re.compile(r"-[0-9][0-9.]*\.so\b")
#: Order of answers: what is loaded, what would be, what holds a copy, what only has the name.
_ORDER = ("file", "library", "embedded", "distribution", "python", "line")


def ask(graph: Graph, text: str, evidence: Iterable[Evidence], words: Vendors) -> Question:
    """The nodes that `text` means; what is a backend's or a vendor's follows from `evidence`."""
    word = text.strip()
    owner = words.get(word.lower())
    if owner is not None:
        kind, backends = owner
        return Question(word, kind, _ordered(graph, _theirs(graph, evidence, backends)))
    if "/" in word:
        path = word.removeprefix("./").lstrip("/")
        nodes = [node for node in graph.nodes.values() if _at(path, node)]
        kind = "path"
    else:
        kind = "glob" if _GLOB.search(word) else "name"
        distribution = graph.nodes.get(node_id(distribution_name(word)))
        if distribution is not None:
            # `torch` is the distribution: whoever means its library writes `libtorch`.
            return Question(word, "distribution", (distribution,), buried=_buried(graph, word))
        nodes = [node for node in graph.nodes.values() if _named(word, node)]
    ids = [node.id for node in nodes]
    near = () if nodes else _near(graph, word)
    return Question(word, kind, _ordered(graph, ids), near, _buried(graph, word))


def vendors(catalogue: Catalogue) -> Vendors:
    """The words that stand for a backend or a vendor in this catalogue."""
    words: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, entry in catalogue.backends.items():
        if entry.vendor is not None:
            kind, names = words.get(entry.vendor, ("vendor", ()))
            words[entry.vendor] = kind, (*names, name)
    for name, entry in catalogue.backends.items():
        for word in (name, *entry.aliases):
            words[word] = "backend", (name,)
    return words


def _theirs(graph: Graph, evidence: Iterable[Evidence], backends: tuple[str, ...]) -> Iterable[str]:
    """Ids of everything that belongs to one of `backends`."""
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
            # Where the name leads to a file, that file is evidence itself (`bundled`).
            yield library_id(item.detail.rpartition("/")[2])


def _at(path: str, node: Node) -> bool:
    """Whether a file lies at `path`, as a glob or a whole path, or ends with it."""
    if node.kind not in ("file", "python"):
        return False
    names = (node.label, *(name for name in node.names if "/" in name))
    return any(item == path or item.endswith(f"/{path}") or matches(path, item) for item in names)


def _buried(graph: Graph, word: str) -> tuple[ShadowedFiles, ...]:
    """What layers hide by that name: libraries, packages, and the metadata of distributions.

    Of one folder the names of a dozen files are known.
    """
    return tuple(buried for buried in graph.buried if _is_buried(word, buried))


def _is_buried(word: str, buried: ShadowedFiles) -> bool:
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
    return matches(distribution_glob(word), package) or any(
        _is(word, name) for name in buried.names
    )


def _named(word: str, node: Node) -> bool:
    if node.kind == "line":
        return False
    if node.kind == "distribution":
        return any(matches(distribution_glob(word), name) for name in node.names)
    return any(_is(word, name) for name in node.names)


def distribution_glob(word: str) -> str:
    """`word` as a normalized name (PEP 503), its wildcards kept."""
    return "".join(
        part if _GLOB.search(part) else distribution_name(part)
        for part in re.split(r"(\*|\?|\[[^\]]*\])", word)
    )


def _is(word: str, name: str) -> bool:
    """Whether `name` is a name of the library `word`; a word with less of a version means all."""
    if _GLOB.search(word):
        return matches(word, name)
    stem = demangle(word)
    return any(
        name == form
        or (name.startswith(f"{form}.") and ".so" in name)
        or (name.startswith(f"{form}-") and _VERSION.match(name, len(form)) is not None)
        for form in (word, stem, f"lib{stem}")
    )


def _ordered(graph: Graph, ids: Iterable[str]) -> tuple[Node, ...]:
    nodes = [graph.nodes[id] for id in dict.fromkeys(ids) if id in graph.nodes]
    # A library that many link comes before a file of the same folder that nobody does.
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


def _near(graph: Graph, word: str) -> tuple[str, ...]:
    """Names that contain the word's own part, then those that are spelled alike."""
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
