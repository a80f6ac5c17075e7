"""Possible imports within one distribution, to select the modules worth following."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import translate

from buildmatrix.python_imports.calls import LoadingCode
from buildmatrix.python_imports.program import Program
from buildmatrix.python_imports.source import ANY_MODULE, ANY_SUBMODULE

#: Entries in the imports for computed names.
ANY_MODULES = frozenset({ANY_MODULE, ANY_SUBMODULE})
#: Modules searched for calls of one module's functions.
MOST_CALLERS = 500


class ImportGraph:
    """The imports of a program, from its outlines, and the targets still to be reached."""

    def __init__(self, program: Program, loading: Mapping[str, LoadingCode]) -> None:
        self._program = program
        #: Module or extension to the modules that may import it.
        self._importers: dict[str, set[str]] = {}
        self._with_loads = loading.keys()
        #: Package to its modules that import others by computed names.
        self._computing: dict[str, set[str]] = {}
        #: Targets still to be reached.
        self._targets: set[str] = set()
        for path, outline in program.outlines.items():
            name = program.names[path]
            package = (
                name if path.endswith(("__init__.py", "__init__.pyc")) else name.rpartition(".")[0]
            )
            if not ANY_MODULES.isdisjoint(outline.imports):
                self._computing.setdefault(package, set()).add(name)
            owners = {
                program.find_owner(program.resolve_name(imported, package))
                for imported in outline.imports
            }
            for target in {owner[0] for owner in owners if owner is not None}:
                self._add_edge(name, target)
                if target == name and (inner := program.find_namesake(name)) is not None:
                    self._add_edge(name, inner)
        self._targets.update(
            name for name in program.extensions if any(self._possible_importers(name))
        )
        for name, item in loading.items():
            if item.at_import:
                self._targets.add(name)
            self._targets.update(self._find_callers(name, item.functions))
        # The effects of these are unknown.
        self._targets.update(program.names[path] for path in (*program.unparsed, *program.partial))
        self._leading: set[str] | None = None

    def _add_edge(self, name: str, target: str) -> None:
        while target:
            # Parents are imported first; a module that imports its own parent adds nothing.
            if name != target and not name.startswith(f"{target}."):
                self._importers.setdefault(target, set()).add(name)
            target = target.rpartition(".")[0]

    def _find_callers(self, name: str, functions: frozenset[str]) -> Iterator[str]:
        """Yield modules that may call one of `functions` of the module `name`."""
        calls = [f".{function}(".encode() for function in functions]
        imports = tuple(f".{function}" for function in functions)
        for importer in sorted(self._importers.get(name, ()))[:MOST_CALLERS]:
            path = self._program.modules.get(importer)
            if path is None:
                continue
            if any(item.endswith(imports) for item in self._program.outlines[path].imports):
                yield importer
            elif calls:
                source = self._program.source(path) or b""
                if any(call in source for call in calls):
                    yield importer

    def _possible_importers(self, name: str) -> Iterator[str]:
        """Yield modules that may import `name`.

        A module that no import names may be named by a computed import in one of its packages.
        """
        importers = self._importers.get(name)
        if importers is not None:
            yield from importers
            return
        package = name.rpartition(".")[0]
        while package:
            yield from self._computing.get(package, ())
            package = package.rpartition(".")[0]

    def is_mentioned(self, name: str) -> bool:
        """True if some module imports `name`."""
        return bool(self._importers.get(name))

    def visited(self, name: str, *, unguarded: bool) -> None:
        """Record that a module was followed; without guards, following it again adds nothing."""
        if unguarded and name in self._targets:
            self.resolved(name)

    def resolved(self, name: str) -> None:
        """Record a target that is reached without a guard, so that it is no longer looked for."""
        if name in self._targets:
            self._targets.discard(name)
            self._leading = None

    def leads_to_more(self, name: str) -> bool:
        """True if following the module may reach another target."""
        if self._leading is None:
            self._leading = set(self._targets)
            ahead = list(self._targets)
            while ahead:
                for importer in self._possible_importers(ahead.pop()):
                    if importer not in self._leading:
                        self._leading.add(importer)
                        ahead.append(importer)
        return name in self._leading

    def is_worth_calling(self, name: str) -> bool:
        """True if a function of the module may load something, or import a module that does."""
        return name in self._with_loads or self.leads_to_more(name)

    def files(self, names: Iterable[str]) -> Iterator[str]:
        """Yield binaries of the distribution that match one of the patterns."""
        for name in names:
            anchored = name.startswith("/")
            if not re.search(r"[A-Za-z0-9_]{2}", name.rpartition("/")[2].replace(".so", "")):
                continue  # `*.so` is any library.
            pattern = re.compile(translate(name.lstrip("/") if anchored else f"*/{name}"))
            for path in self._program.binaries:
                if pattern.match(path if anchored else f"/{path}"):
                    yield path
