"""Failures on a target: of an import of a distribution, or of its main purpose.

- A file that an import loads links a library that nothing provides.
- Most of its code of the machine links the backend's libraries in another toolkit line, and no file
  links them in the target's: its main purpose fails, whatever loads it.
- An import loads a library by its name in Python, and that is missing.
- An import calls into another distribution that needs such a library.
- An import imports a module that comes with software of another vendor, and that is missing.
- An import imports a module that the distribution has for another system.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal

from buildmatrix.base.text import listing
from buildmatrix.catalogue.lookup import library
from buildmatrix.catalogue.model import DistributionMatch, Evidence, opened_library
from buildmatrix.facts.inventory.model import PythonLoad
from buildmatrix.facts.loader_process import file_name
from buildmatrix.judge.model import Failure
from buildmatrix.judge.tree import TreeView

#: Libraries that look for the drivers of several vendors: no vendor's, and have to be there.
LOADER = "loader"


def failure(tree: TreeView, owner: str, evidence: Sequence[Evidence]) -> Failure | None:
    """Return the first known failure, or None.

    Args:
        tree: what the distribution is installed beside.
        owner: the distribution, `name==version`.
        evidence: all evidence of it.
    """
    failures = chain(
        _links(tree, owner, evidence),
        _loads(tree, owner, evidence),
        _imports(tree, owner, "call"),
        _imports(tree, owner, "module"),
        _alien(tree, owner),
    )
    return next(failures, None)


def absent_links(tree: TreeView, owner: str, evidence: Sequence[Evidence]) -> list[Evidence]:
    """Return libraries that files of a distribution link, and that nothing provides."""
    supplied = tree.supplied.get(owner, frozenset())
    return [
        item
        for item in evidence
        if item.kind == "needed"
        and (item.weight == "strong" or item.role == LOADER or not tree.is_foreign(item))
        and item.backend not in supplied
        and tree.is_absent(item)
        and not tree.may_be_missing(item)
    ]


def _links(tree: TreeView, owner: str, evidence: Sequence[Evidence]) -> Iterator[Failure]:
    absent = absent_links(tree, owner, evidence)
    for item in absent:
        if tree.reach.get(item.path) == "import":
            yield _link(tree, item, "link")
    # Authors know that a guarded import may fail.
    # So does a library that an installer puts where only links find it, of no vendor's package.
    is_named = any(item.kind == "declared" and item.weight == "strong" for item in evidence)
    lost = [
        part
        for part in absent
        if (tree.is_other_line(part.detail) and tree.reach.get(part.path) != "guarded")
        or (not is_named and _is_in_prefix(part.path, tree.sites.get(owner, "")))
    ]
    share = sum(tree.native.get(path, 0) for path in {part.path for part in lost})
    if share * 2 > tree.native_of.get(owner, 0) and not _serves(tree, evidence):
        yield _link(tree, lost[0], "plugin")


def _is_in_prefix(path: str, site: str) -> bool:
    """Return True for a file in the `lib` of the environment, outside of Python's folders.

    A wheel has it under `.data/data/lib`, which its tree shows as `lib`.
    """
    folder = path.rpartition("/")[0]
    if not site:
        return folder == "lib"
    return not path.startswith(site) and folder.rpartition("/")[2] == "lib"


def _link(tree: TreeView, evidence: Evidence, kind: Literal["link", "plugin"]) -> Failure:
    where = "not in the tree"
    if tree.is_other_line(evidence.detail):
        where = f"not of {tree.catalogue.title(tree.backend)} {tree.line}, and nothing provides it"
    path, name = evidence.path, evidence.detail
    reason = f"{path} links {name}, which is {where}"
    return Failure(kind, path, path, name, evidence.vendor, reason, (evidence,))


def _serves(tree: TreeView, evidence: Sequence[Evidence]) -> bool:
    """Return True if some file works with the target's toolkit line; one variant is enough."""
    lines: dict[str, set[bool]] = {}
    for item in evidence:
        if item.kind == "needed" and item.backend == tree.backend and item.toolkit is not None:
            other = tree.is_other_line(item.detail) and tree.is_absent(item)
            lines.setdefault(item.path, set()).add(other)
    return any(others == {False} for others in lines.values())


def _loads(tree: TreeView, owner: str, evidence: Sequence[Evidence]) -> Iterator[Failure]:
    for call in tree.loads.get(owner, ()):
        names = {opened_library(call.call, text) for text in call.names if _may_fail(call, text)}
        tried = [
            item
            for item in evidence
            if item.kind == "python-dlopen"
            and item.path == call.path
            and item.detail in names
            and (tree.is_foreign(item) or tree.is_other_line(item.detail))
            and (item.weight == "strong" or item.role == LOADER)
        ]
        others = {name for name in names if name is not None and ".so" in name} - {
            item.detail for item in tried
        }
        if not tried or tree.holds(names) or (others and len(names) > 1):
            continue
        first = tried[0]
        if first.backend not in tree.supplied.get(owner, ()):
            place, name = f"{call.path}:{call.line}", first.detail
            reason = f"its import loads {name} ({place}), which is missing"
            yield Failure("load", call.path, place, name, first.vendor, reason, tuple(tried))


def _may_fail(call: PythonLoad, text: str) -> bool:
    """Return True if a load of this name fails without the library.

    A search that finds nothing leads to `CDLL(None)`, which opens the program itself (dlopen(3)).
    """
    return call.call == "find_library" or "/" in text or not text.endswith(".so*")


def _imports(tree: TreeView, owner: str, kind: Literal["call", "module"]) -> Iterator[Failure]:
    """Yield calls of modules whose libraries are missing, or imports of missing modules."""
    for used in tree.imports.get(owner, ()):
        statement, backend = used.statement, used.match.backend
        if backend in tree.supplied.get(owner, ()) or not needs_library(tree, used.match):
            continue
        software = tree.catalogue.title(backend)
        if kind == "call" and statement.how == "called" and backend not in tree.runtimes:
            name = statement.module
            reason = (
                f"its import calls {name} ({used.place}), and nothing provides the libraries of "
                f"{software}"
            )
        elif kind == "module" and statement.how == "missing" and statement.provider is None:
            name = statement.module.partition(".")[0]
            reason = f"its import imports {name} ({used.place}) of {software}, which is missing"
        else:
            continue
        vendor = used.match.vendor or ""
        yield Failure(kind, statement.path, used.place, name, vendor, reason)


def _alien(tree: TreeView, owner: str) -> Iterator[Failure]:
    for used, module in tree.alien.get(owner, ()):
        place = f"{used.path}:{used.line}"
        known = [
            (name, match.owned)
            for name in module.links
            for match in library(name.lower(), None, tree.catalogue)
            if match.weight == "strong" and match.owned.vendor is not None
        ]
        system = "Windows" if module.kind == "pe" else "macOS"
        links = f" and links {listing(name for name, _ in known)}" if known else ""
        vendor = (known[0][1].vendor or "") if known else ""
        kind: Literal["load", "module"] = "load" if isinstance(used, PythonLoad) else "module"
        name = file_name(module.path) if isinstance(used, PythonLoad) else used.module
        does = "loads" if kind == "load" else "imports"
        reason = f"its import {does} {name} ({place}): {module.path} is for {system}{links}"
        yield Failure(kind, used.path, place, name, vendor, reason)


def needs_library(tree: TreeView, match: DistributionMatch) -> bool:
    """Return True if a call of the distribution certainly needs a foreign library."""
    return (
        tree.is_foreign(match)
        and tree.backend not in match.tolerated_in
        and match.weight == "strong"
        and match.kind in ("pure", "native")
    )
