"""Imports between distributions, and calls into them at import time.

The import graph consists of statements at the beginning of a line: they run, and nothing catches
their failure. It is read from outlines. Only modules on that graph with imports of interest are
parsed, for the functions that they call while they are imported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from itertools import accumulate
from operator import attrgetter
from typing import Literal

from buildmatrix.facts.inventory.distributions import Ownership
from buildmatrix.facts.inventory.listing import Listing, distribution_name
from buildmatrix.facts.inventory.memory import (
    PythonAnswer,
    PythonFacts,
    PythonMemory,
    TreeModule,
    is_unchanged,
    make_answer_key,
)
from buildmatrix.facts.inventory.model import Distribution, PythonImport, Unparsed
from buildmatrix.facts.python_imports.graph import find_calls_at_import
from buildmatrix.facts.python_imports.program import Program
from buildmatrix.facts.python_imports.source import (
    LARGEST_SOURCE,
    Outline,
    may_call_at_import,
    runs_at_startup,
)
from buildmatrix.facts.python_imports.statements import find_import_line, find_statement_line

#: Bytes of source parsed for one distribution (0.4 s), and for a tree (1 s). Excess is reported.
MOST_SOURCE = 6 << 20
MOST_SOURCE_IN_ALL = 16 << 20
#: Modules that one distribution imports and that are looked for in its text.
MOST_MISSING = 30
#: Folders whose modules only a test runner imports.
_TESTS = frozenset({"test", "tests", "testing"})
#: Modules of the standard library, in any version of Python 3.
_OTHER_VERSIONS = """
    __future__ __main__ _interpreters annotationlib asynchat asyncore audioop binhex cgi cgitb chunk
    compression crypt distutils dummy_threading formatter imghdr imp lib2to3 macpath mailcap msilib
    nis nntplib ossaudiodev parser pipes smtpd sndhdr spwd sunau symbol telnetlib tomllib uu xdrlib
"""
_STANDARD = sys.stdlib_module_names | set(_OTHER_VERSIONS.split())
#: Modules and packages beside the one that a distribution is for.
_BESIDE = _TESTS | {
    "benchmarks",
    "conftest",
    "doc",
    "docs",
    "examples",
    "scripts",
    "setup",
    "tools",
}
_TOO_MUCH = "too much source: not all of its calls into other distributions were looked for"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r";.*\bextra\b")


def find_outside_imports(
    listing: Listing,
    ownership: Ownership,
    distributions: Sequence[Distribution],
    binaries: Sequence[str],
    outlines: Mapping[str, Outline],
    memory: PythonMemory | None = None,
    folders: Iterable[str] = (),
) -> tuple[PythonFacts, Mapping[str, PythonAnswer]]:
    """Find the imports between the distributions, and the answers for the memory to keep.

    `folders` are those that interpreters import from, also by `.pth` files. The facts are one
    import for each pair and manner, sorted, and the distributions with too much source to find all
    of them.

    `called` applies to extension modules and to modules that load libraries, if the tree has the
    other distribution; else to distributions that the metadata requires.
    """
    everywhere = _TreeModules(ownership, distributions, binaries, outlines, folders)
    everywhere.others = {
        f"{folder}/{name.partition('.')[0]}"
        for path in listing.files.keys() - set(binaries)
        if path.endswith((".pyd", ".so"))
        for folder, _, name in [path.rpartition("/")]
    }
    names = _group_bare_names(listing, everywhere, outlines) if memory is not None else {}
    facts: list[PythonFacts] = []
    answers: dict[str, PythonAnswer] = {}
    remaining = MOST_SOURCE_IN_ALL
    for item in distributions:
        owner = item.owner
        sources, libraries = everywhere.files.get(owner, ({}, []))
        if not sources:
            continue
        budget = min(MOST_SOURCE, remaining)
        key = answer = None
        if memory is not None:
            site = everywhere.site(owner)
            parts = (owner, site, everywhere.is_single, budget, *item.requires)
            files = (listing.files[path] for path in sorted(sources))
            tops = {_top_module(site, path) for path in (*sources, *libraries)}
            bare = (name for top in sorted(tops) for name in names.get(site + top, ()))
            parts = (*parts, "", *sorted(libraries), "", *bare)
            key = make_answer_key(memory, "imports", parts, files)
            answer = memory.recall_python(key) if key is not None else None
        if answer is None or any(
            everywhere.find(name, everywhere.site(owner)) != module
            for name, module in answer.modules.items()
        ):
            answer, is_whole = _analyze(listing, item, owner, everywhere, budget, memory)
            if key is not None and is_whole:
                answers[key] = answer
        facts.append(answer.facts)
        remaining -= answer.parsed
    found = {imported for python_facts in facts for imported in python_facts.imports}
    missing = {
        imported: imported.module.partition(".")[0]
        for imported in found
        if imported.how == "missing" and imported.provider is None
    }
    present = set(_present(set(missing.values()), listing.files, everywhere.folders))
    found -= {imported for imported, name in missing.items() if name in present}
    imports = sorted(found, key=attrgetter("path", "line", "how", "module"))
    unparsed = (entry for python_facts in facts for entry in python_facts.unparsed)
    return PythonFacts(imports=tuple(imports), unparsed=tuple(unparsed)), answers


def _group_bare_names(
    listing: Listing, everywhere: _TreeModules, outlines: Mapping[str, Outline]
) -> Mapping[str, list[str]]:
    """Group the names that imports depend on beside the bytes of files, by top-level module."""
    names = {path for path in listing.files if path.endswith("/__init__.py")} - outlines.keys()
    groups: dict[str, list[str]] = {}
    for name in sorted(names | everywhere.others):
        for site in everywhere.sites:
            if name.startswith(site):
                groups.setdefault(site + _top_module(site, name), []).append(name)
    return groups


def _top_module(site: str, path: str) -> str:
    return path[len(site) :].partition("/")[0].partition(".")[0]


def _present(names: set[str], paths: Iterable[str], folders: Iterable[str]) -> Iterator[str]:
    """Yield the names that a tree has at the top of a folder of modules, or outside of them."""
    tops = sorted(folders, key=len, reverse=True)
    for path in paths if names else ():
        site = next((top for top in tops if path.startswith(top)), None)
        parts = path.split("/") if site is None else path[len(site) :].split("/", 1)[:1]
        yield from names.intersection(part.partition(".")[0] for part in parts)


def _analyze(
    listing: Listing,
    item: Distribution,
    owner: str,
    everywhere: _TreeModules,
    budget: int,
    memory: PythonMemory | None,
) -> tuple[PythonAnswer, bool]:
    """Return the imports of one distribution, and True if all needed files were read unchanged."""
    sources, libraries = everywhere.files[owner]
    site = everywhere.site(owner)
    is_whole = True

    def read(path: str) -> bytes | None:
        nonlocal is_whole
        if listing.files[path].size > LARGEST_SOURCE:
            return None
        try:
            data = listing.tree.read_bytes(listing.files[path].path, LARGEST_SOURCE)
        except OSError:
            # The reader of the file's own facts notes that.
            is_whole = False
            return None
        listing.bytes_read += len(data)
        is_whole = is_whole and is_unchanged(memory, listing.files[path], data)
        return data

    program = Program(site, sources, libraries, read, budget)
    foreign = _ForeignImports(item, owner, program, everywhere, listing.files)
    imports = tuple(foreign.all())
    program.drop_trees()
    unparsed: tuple[Unparsed, ...] = ()
    if program.incomplete:
        unparsed = (Unparsed(site + owner, _TOO_MUCH, owner, "unknown"),)
    facts = PythonFacts(imports=imports, unparsed=unparsed)
    return PythonAnswer(facts, budget - program.budget, foreign.places), is_whole


class _TreeModules:
    """All modules of a tree, with their owners."""

    def __init__(
        self,
        ownership: Ownership,
        distributions: Sequence[Distribution],
        binaries: Sequence[str],
        outlines: Mapping[str, Outline],
        folders: Iterable[str],
    ) -> None:
        self.is_single = len(distributions) == 1
        #: Modules, by path without suffix, of files that are no code of this system.
        self.others: Set[str] = frozenset()
        self._owners = ownership.owners
        self._outlines = outlines
        self._sites = {item.owner: item.site for item in distributions}
        self.sites = frozenset(self._sites.values())
        further = (f"{folder}/".lstrip("/") for folder in folders)
        #: Folders of modules, those of distributions first.
        self.folders = tuple(dict.fromkeys((*self._sites.values(), *further)))
        self.files: dict[str, tuple[dict[str, Outline], list[str]]] = {}
        self._extensions: dict[str, str] = {}
        for path, outline in outlines.items():
            owner = ownership.owners.get(path)
            if owner in self._sites:
                self.files.setdefault(owner, ({}, []))[0][path] = outline
        for path in binaries:
            folder, _, name = path.rpartition("/")
            if name.endswith(".so"):
                self._extensions.setdefault(f"{folder}/{name.partition('.')[0]}", path)
            owner = ownership.owners.get(path)
            if owner in self._sites:
                self.files.setdefault(owner, ({}, []))[1].append(path)

    def site(self, owner: str) -> str:
        """Return the folder of an owner's modules."""
        return self._sites[owner]

    def find(self, dotted: str, site: str) -> TreeModule | None:
        """Find the module that `dotted` names or is an attribute of; the owner's own site first."""
        parts = dotted.split(".")
        for folder in (site, *self.folders):
            for count in range(len(parts), 0, -1):
                stem = folder + "/".join(parts[:count])
                path, loads = self._extensions.get(stem), True
                for source in (f"{stem}/__init__.py", f"{stem}.py"):
                    if source in self._outlines:
                        path, loads = source, self._outlines[source].loads
                if path is not None:
                    return TreeModule(".".join(parts[:count]), self._owners.get(path), loads)
        return None


class _ForeignImports:
    """The imports of one distribution."""

    def __init__(
        self,
        item: Distribution,
        owner: str,
        program: Program,
        everywhere: _TreeModules,
        files: Container[str],
    ) -> None:
        self._owner = owner
        self._program = program
        self._everywhere = everywhere
        #: Required distribution to True if it is required without an extra.
        self._required: dict[str, bool] = {}
        for line in item.requires:
            if match := _NAME.match(line):
                name = distribution_name(match[0])
                self._required[name] = self._required.get(name, False) or not _EXTRA.search(line)
        self._name = item.name
        self._site = everywhere.site(owner)
        self._files = files
        #: Dotted names looked up so far, with their modules.
        self.places: dict[str, TreeModule | None] = {}
        #: Path to the outside imports in its statements at the beginning of a line.
        self._plain: dict[str, list[str]] = {}

    def all(self) -> Iterator[PythonImport]:
        program = self._program
        reported: set[tuple[str, str]] = set()  # (manner, provider or module)
        for path, outline in sorted(program.outlines.items()):
            if _TESTS.isdisjoint(path.split("/")):
                tried = (self._absolute(path, name) for name in outline.tried)
                yield from self._report(reported, path, "tried", filter(self._is_outside, tried))
        reached = list(self._walk_reached())
        for path in reached:
            yield from self._report(reported, path, "imported", self._plain[path])
        yield from self._missing()
        for path in reached:
            if any(self._may_load(name) for name in self._plain[path]) and self._may_call(path):
                yield from self._find_calls(reported, path)

    def _missing(self) -> Iterator[PythonImport]:
        """Yield what the main modules import and the tree does not have."""
        program = self._program
        tries = 0
        # A program that prepends its own folder to `sys.path` has more top-level names.
        reported = {
            part
            for name in (*program.names.values(), *program.extensions)
            for part in re.split(r"[./]", name)
        }
        for path in self._walk_reached(list(self._main_modules())):
            yield from self._of_other_systems(path, reported)
            names = {
                name: None
                for name in self._plain[path]
                if name.partition(".")[0] not in reported
                and self._find(name) is None
                and not self._required.get(distribution_name(name.partition(".")[0]))
            }
            source = program.source(path) or b"" if names else b""
            for name in names:
                first = name.partition(".")[0]
                if first in reported:
                    continue
                tries += 1
                if tries > MOST_MISSING:
                    return
                line = find_statement_line(source, name)
                if line is not None:
                    reported.add(first)
                    yield PythonImport(path, line, name, "missing", self._owner)

    def _of_other_systems(self, path: str, reported: set[str]) -> Iterator[PythonImport]:
        """Yield an import of an own module that exists for another system only."""
        for written in self._program.outlines[path].plain if self._everywhere.others else ():
            name = self._absolute(path, written)
            place = f"{self._site}{name.replace('.', '/')}"
            if name in reported or place not in self._everywhere.others:
                continue
            reported.add(name)
            owner = self._program.find_owner(name)
            line = find_statement_line(self._program.source(path) or b"", written)
            if owner is not None and owner[0] != name and line is not None:
                yield PythonImport(path, line, name, "missing", self._owner, self._owner)
            return  # One is enough, and looking for many takes long.

    def _main_modules(self) -> Iterator[str]:
        """Yield the modules that users import first.

        Of several, only the one with the distribution's name.
        """
        program = self._program
        tops = {
            name.partition(".")[0]
            for name, path in program.modules.items()
            if "/" not in name and not runs_at_startup(path)
        }
        tops = {name for name in tops if name not in _BESIDE and not name.startswith("_")}
        names = [
            name
            for name in program.roots()
            if name in program.modules
            and name.partition(".")[0] in tops
            # None of its parents has an `__init__`, which may be empty.
            and not any(
                f"{self._site}{parent}/__init__.py" in self._files
                for parent in accumulate(name.split(".")[:-1], "{}/{}".format)
            )
        ]
        named = [name for name in names if distribution_name(name.replace(".", "-")) == self._name]
        yield from named or (names if len(names) == len(tops) == 1 else ())

    def _walk_reached(self, roots: Sequence[str] | None = None) -> Iterator[str]:
        """Yield the paths of modules that an import of the distribution, or of `roots`, runs."""
        program = self._program
        ahead = [
            name
            for name in (program.roots() if roots is None else roots)
            if name in program.modules
        ]
        reached = set(ahead)
        for name in ahead:  # grows during the loop
            path = program.modules[name]
            yield path
            outside = self._plain[path] = []
            package = program.package_of(path)
            for written in program.outlines[path].plain:
                imported = program.resolve_name(written, package)
                owner = program.find_owner(imported)
                if owner is None and self._is_foreign(imported):
                    outside.append(imported)
                further = owner[0] if owner is not None else ""
                while further:
                    if further not in reached and further in program.modules:
                        reached.add(further)
                        ahead.append(further)
                    further = further.rpartition(".")[0]

    def _absolute(self, path: str, written: str) -> str:
        return self._program.resolve_name(written, self._program.package_of(path))

    def _is_outside(self, name: str) -> bool:
        return self._is_foreign(name) and self._program.find_owner(name) is None

    @staticmethod
    def _is_foreign(name: str) -> bool:
        first = name.partition(".")[0]
        return bool(first) and first not in _STANDARD

    def _may_call(self, path: str) -> bool:
        """True if the file may directly call something that loads a library; saves parsing."""

        def is_relevant(written: str) -> bool:
            name = self._absolute(path, written)
            return self._is_outside(name) and self._may_load(name)

        return may_call_at_import(self._program.source(path) or b"", is_relevant)

    def _find(self, name: str) -> TreeModule | None:
        if name not in self.places:
            site = self._everywhere.site(self._owner)
            self.places[name] = self._everywhere.find(name, site)
        return self.places[name]

    def _may_load(self, name: str) -> bool:
        """True if a call of something in the module `name` may load a library."""
        place = self._find(name)
        if place is not None:
            return place.loads and place.owner != self._owner
        if not self._everywhere.is_single:
            return False
        parts = name.split(".")
        return any(
            distribution_name("-".join(parts[:count])) in self._required
            for count in range(1, min(len(parts), 3) + 1)
        )

    def _report(
        self,
        reported: set[tuple[str, str]],
        path: str,
        how: Literal["imported", "tried"],
        names: Iterable[str],
    ) -> Iterator[PythonImport]:
        for name in names:
            place = self._find(name)
            provider = place.owner if place is not None else None
            if how == "imported" and provider is None:
                continue
            if provider == self._owner or self._was_reported(reported, how, provider or name):
                continue
            module = name if place is None else place.module
            line = find_import_line(self._program.source(path) or b"", module)
            yield PythonImport(path, line, module, how, self._owner, provider)

    def _was_reported(self, reported: set[tuple[str, str]], how: str, name: str) -> bool:
        """True if `name`, or a module around it, was reported; marks it as reported."""
        parts = name.split(".")
        if any((how, ".".join(parts[:count])) in reported for count in range(1, len(parts) + 1)):
            return True
        reported.add((how, name))
        return False

    def _find_calls(self, reported: set[tuple[str, str]], path: str) -> Iterator[PythonImport]:
        module = self._program.module(self._program.names[path])
        if module is None:
            return
        for dotted, line in find_calls_at_import(self._program, module):
            if not self._is_outside(dotted) or not self._may_load(dotted):
                continue
            place = self._find(dotted)
            provider = place.owner if place is not None else None
            # Without the other distribution, the call counts as one of a function of a module.
            name = place.module if place is not None else dotted.rpartition(".")[0]
            if not self._was_reported(reported, "called", provider or name):
                yield PythonImport(path, line, name, "called", self._owner, provider)
