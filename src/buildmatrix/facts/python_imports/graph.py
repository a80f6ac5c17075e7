"""Imports and import-time calls among the modules of a distribution."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import translate

from buildmatrix.facts.python_imports.module import LoadingCode, Module
from buildmatrix.facts.python_imports.parser import (
    children,
    dotted_name,
    evaluate_condition,
    evaluated_at_definition,
    last_name,
)
from buildmatrix.facts.python_imports.program import Program
from buildmatrix.facts.python_imports.source import (
    ANY_MODULE,
    ANY_SUBMODULE,
    Outline,
    find_run_imports,
)

# Modules worth following


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
            name, package = program.names[path], program.package_of(path)
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


# Files of a wheel, in the course of reading it


class ImportStages:
    """The Python files of a wheel, of which only `paths` are known."""

    def __init__(self, paths: Iterable[str]) -> None:
        nothing = Outline()
        self._program = Program("", dict.fromkeys(paths, nothing), (), lambda _: None, 0)
        #: Imported name to the files that its import runs.
        self._runs: dict[str, tuple[str, ...]] = {}

    def first_files(self) -> Iterator[str]:
        """Yield the files that users import first, including those that an installer moves."""
        program = self._program
        for name in program.roots():
            yield program.modules[name]
        for path in program.outlines:
            if path.partition("/")[0].endswith(".data"):
                yield path

    def files_after(self, path: str, source: bytes) -> Iterator[str]:
        """Yield the files that an import of the file at `path`, with these bytes, runs in turn."""
        program = self._program
        package = program.package_of(path)
        for written in find_run_imports(source):
            if written == ANY_MODULE:
                for module, other in program.modules.items():
                    if module.startswith(f"{package}."):
                        yield other
            elif written == ANY_SUBMODULE:
                for inner in program.list_submodules(package):
                    if (module := f"{package}.{inner}") in program.modules:
                        yield program.modules[module]
            else:
                imported = program.resolve_name(written, package)
                if imported not in self._runs:
                    self._runs[imported] = tuple(self._find_run_files(imported))
                yield from self._runs[imported]

    def _find_run_files(self, imported: str) -> Iterator[str]:
        """Yield the files of a module and of its packages."""
        program = self._program
        owner = program.find_owner(imported)
        module = owner[0] if owner is not None else ""
        while module:
            if module in program.modules:
                yield program.modules[module]
            module = module.rpartition(".")[0]


# Calls at import time on every system


#: Depth of nested functions called at import time.
DEEPEST_CALL = 3


def find_calls_at_import(program: Program, module: Module) -> Iterator[tuple[str, int]]:
    """Yield calls to other modules that an import of `module` certainly makes: dotted name, line.

    Capitalized names are classes, whose instantiation loads nothing as a rule.
    """
    yield from _find_calls(program, module, module.tree.body, 0, set())


def _find_calls(
    program: Program, module: Module, body: Iterable[ast.stmt], depth: int, entered: set[str]
) -> Iterator[tuple[str, int]]:
    for statement in body:
        for call in _list_calls(statement):
            name = dotted_name(call.func) or ""
            first, _, rest = name.partition(".")
            if not rest and first in module.functions:
                if first not in entered and depth < DEEPEST_CALL:
                    entered.add(first)
                    function = program.complete_function(module, module.functions[first])
                    yield from _find_calls(program, module, function.body, depth + 1, entered)
            elif first in module.imported:
                last = name.rpartition(".")[2]
                if last[:1].islower():
                    dotted = module.imported[first] + (f".{rest}" if rest else "")
                    yield dotted, call.lineno
        if isinstance(statement, (ast.Return, ast.Raise)):
            return


def _list_calls(statement: ast.stmt) -> Iterator[ast.Call]:
    """Yield the calls that a statement makes on every system; those in a `try` do not count."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            ahead: list[ast.AST] = list(evaluated_at_definition(statement))
        case ast.If():
            value = evaluate_condition(statement.test)
            if value is not None:
                for inner in statement.body if value else statement.orelse:
                    yield from _list_calls(inner)
            ahead = [statement.test]
        case ast.With() | ast.AsyncWith():
            ahead = [item.context_expr for item in statement.items]
            if any(last_name(item.context_expr) == "suppress" for item in statement.items):
                return
            for inner in statement.body:
                yield from _list_calls(inner)
        case ast.ClassDef():
            for inner in statement.body:
                yield from _list_calls(inner)
            ahead = list(evaluated_at_definition(statement))
        case ast.For() | ast.AsyncFor():
            ahead = [statement.iter]
        case ast.While() | ast.Match() | ast.Try():
            return
        case _ if type(statement).__name__ == "TryStar":  # missing from Python 3.10
            return
        case _:
            ahead = [statement]
    while ahead:
        node = ahead.pop()
        if isinstance(node, ast.Lambda):
            ahead.extend(evaluated_at_definition(node))
            continue
        if isinstance(node, (ast.IfExp, ast.BoolOp, ast.GeneratorExp)):
            continue
        if isinstance(node, ast.Call):
            yield node
        ahead.extend(children(node))
