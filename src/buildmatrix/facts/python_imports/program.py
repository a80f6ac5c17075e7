"""The Python files of one distribution: their modules, imports and calls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence

from buildmatrix.facts.python_imports.module import Module, bind_arguments
from buildmatrix.facts.python_imports.parser import (
    Function,
    Unparsable,
    all_statements,
    definitions,
    dotted_name,
    has_many_signs,
    last_name,
    normalize_source,
    simplify_tree,
    startup_lines,
)
from buildmatrix.facts.python_imports.repair import read_tree
from buildmatrix.facts.python_imports.skeleton import (
    NOTHING_OMITTED,
    fill_body,
    first_line,
    make_excerpt,
    parse_skeleton,
)
from buildmatrix.facts.python_imports.source import (
    LARGEST_SOURCE,
    Outline,
    find_renamed_imports,
    has_loading_word,
    runs_at_startup,
)
from buildmatrix.facts.python_imports.spelling import normalize_loads
from buildmatrix.facts.python_imports.values import (
    NOTHING,
    UNKNOWN,
    Evaluator,
    Scope,
    Value,
    make_scope,
)

#: Bytes of source with cached syntax trees; a tree takes about 20 times as much. With half of it,
#: every fourth file of a large environment is parsed twice.
CACHED_SOURCE = 256 << 10
#: Bytes of source parsed for one distribution: a second.
MOST_SOURCE = 6 << 20
#: The same for all distributions of a tree together, those with little source first. About 200 of
#: them may use 170 MB, and use a quarter of their limit.
MOST_SOURCE_IN_ALL = 256 << 20
#: Names that lead to names in other modules.
MOST_REEXPORTS = 4
#: Depth of nested calls whose results are followed.
DEEPEST_CALL = 6


class Program:
    """The modules of one distribution, at most `budget` bytes of which are parsed.

    `site` is the folder of its modules, with a trailing slash or empty; `read` returns the bytes of
    a file, or None.
    """

    def __init__(
        self,
        site: str,
        outlines: Mapping[str, Outline],
        binaries: Iterable[str],
        read: Callable[[str], bytes | None],
        budget: int,
    ) -> None:
        self._read = read
        #: Bytes that may still be parsed.
        self._site = site
        self.budget = budget
        self.binaries = sorted(binaries)
        self.outlines = outlines
        #: Dotted name to path, and the reverse: every file has a name of its own.
        self.modules: dict[str, str] = {}
        self.names: dict[str, str] = {}
        for path in sorted(outlines):  # `a/b.py` before `a/b/__init__.py`, which Python prefers
            name = _module_name(path, site)
            if "." in path.rpartition("/")[2].removesuffix(".pyc").removesuffix(".py"):
                name = _make_hidden_name(name, path)
            elif name in self.modules:
                hidden = self.modules[name]
                self.names[hidden] = _make_hidden_name(name, hidden)
                self.modules[self.names[hidden]] = hidden
            self.modules[name] = path
            self.names[path] = name
        #: Dotted name to paths of the extension modules of that name.
        self.extensions: dict[str, list[str]] = {}
        for path in self.binaries:
            if path.endswith(".so"):
                self.extensions.setdefault(_module_name(path, site), []).append(path)
        #: Folder without `__init__` to the packages around it that have one.
        self._gaps: dict[str, list[str]] = {}
        for parent in sorted({name.rpartition(".")[0] for name in self.modules}):
            while parent:
                above, _, last = parent.rpartition(".")
                if above in self.modules and parent not in self.modules:
                    packages = self._gaps.setdefault(last, [])
                    if above not in packages:
                        packages.append(above)
                parent = above
        #: First parts of the names of all modules, extensions, and redirected ones.
        self._first_names = self._gaps.keys() | {
            name.partition(".")[0] for name in (*self.modules, *self.extensions)
        }
        self._parsed_modules: dict[str, tuple[Module, int]] = {}
        #: Files larger than the rest of the budget.
        self._refused: set[str] = set()
        #: Files parsed at least once; their trees may have been dropped since.
        self._parsed: set[str] = set()
        #: Files that could not be parsed, and those parsed partly, with the reason.
        self.unparsed: dict[str, str] = {}
        self.partial: dict[str, str] = {}
        #: True if files were skipped because there are too many.
        self.incomplete = False

    def roots(self) -> list[str]:
        """Return the modules that users import first: those in no package with an `__init__`.

        A lone module below a folder without `__init__` is a script or an example; `a/b/__init__.py`
        below a folder `a` without one is a package of a namespace.
        """
        packages = [
            name
            for name, path in self.modules.items()
            if path.endswith("/__init__.py")
            # `site` reads those in its own folder.
            or (runs_at_startup(path) and "/" not in path[len(self._site) :])
        ]
        lone = [
            name
            for name in (*self.modules, *self.extensions)
            if "." not in name and "/" not in name
        ]
        return sorted(
            name
            for name in {*packages, *lone}
            if name.rpartition(".")[0] not in self.modules
            and (name in self.modules or self.is_importable(name))
        )

    def is_importable(self, name: str) -> bool:
        """True if the extension `name` looks like a Python module, by its files (PEP 3149)."""
        return any(
            ".cpython-" in path or ".abi3." in path or not path.rpartition("/")[2].startswith("lib")
            for path in self.extensions[name]
        )

    def find_owner(self, dotted: str) -> tuple[str, str] | None:
        """Return the longest prefix that is a module or extension, and the rest; None if not."""
        if dotted in self.modules:
            return dotted, ""
        first = dotted.partition(".")[0]
        if first not in self._first_names:
            return None
        owner = self._find_prefix(dotted)
        # A redirector may put a package in the place of another one's. Such a package is in a
        # folder without `__init__` in a package that has one: numba_cuda/numba/cuda, numba.cuda.
        for above in self._gaps.get(first, ()):
            owner = owner or self._find_prefix(f"{above}.{dotted}")
        return owner

    def _find_prefix(self, dotted: str) -> tuple[str, str] | None:
        name = dotted
        while name:
            if name in self.modules or name in self.extensions:
                return name, dotted[len(name) + 1 :].rstrip(".")
            name = name.rpartition(".")[0]
        return None

    def find_namesake(self, name: str) -> str | None:
        """Return the extension in a package that has the package's own name, such as `cv2.cv2`.

        A package that imports its own name, with its folder in `sys.path`, loads that.
        """
        inner = f"{name}.{name.rpartition('.')[2]}"
        return inner if name in self.modules and inner in self.extensions else None

    def package_of(self, path: str) -> str:
        """Return the package that a relative import with one dot in the file at `path` means."""
        is_package = path.rpartition("/")[2] in ("__init__.py", "__init__.pyc")
        return self.names[path] if is_package else self.names[path].rpartition(".")[0]

    def resolve_name(self, name: str, package: str) -> str:
        """Resolve `..a.b` of a module in `package` to an absolute dotted name."""
        if not name.startswith("."):
            return name
        level = len(name) - len(name.lstrip("."))
        parts = package.split(".")
        base = ".".join(parts[: max(0, len(parts) - level + 1)])
        return f"{base}.{name[level:]}".strip(".")

    def source(self, path: str) -> bytes | None:
        """Return the text of a file of the distribution; None if unavailable."""
        data = self._read(path)
        if data is None:
            return None
        return startup_lines(data) if runs_at_startup(path) else normalize_source(data)

    def module(self, name: str) -> Module | None:
        """Return the parsed module `name`; None if missing or unavailable."""
        if name in self._parsed_modules:
            # Least recently used modules are dropped first.
            entry = self._parsed_modules[name] = self._parsed_modules.pop(name)
            return entry[0]
        path = self.modules.get(name)
        if path is None or path in self.unparsed or path in self._refused:
            return None
        if path.endswith(".pyc"):
            self.unparsed[path] = "compiled Python without its source"
            return None
        data = self.source(path)
        if data is None:
            return None
        if len(data) > LARGEST_SOURCE or has_many_signs(data):
            data = make_excerpt(data)
            if not data:
                self.unparsed[path] = "too large to be parsed, and too much of it matters"
                return None
        if len(data) > self.budget:
            self.incomplete = True
            self._refused.add(path)
            if self.outlines[path].loads and path not in self._parsed:
                self.unparsed[path] = "there is too much source: it was not parsed"
            return None
        self.budget -= len(data)
        # Before the next one is parsed. A large one takes 20 MB, and shares memory with no other.
        room = CACHED_SOURCE if len(data) <= CACHED_SOURCE else 0
        while (
            self._parsed_modules and sum(size for _, size in self._parsed_modules.values()) > room
        ):
            del self._parsed_modules[next(iter(self._parsed_modules))]
        try:
            module = self._parse_module(name, path, data)
        except Unparsable as error:
            self.unparsed[path] = error.reason
            return None
        except RecursionError:
            self.unparsed[path] = "nested too deep to be followed"
            return None
        self._parsed_modules[name] = (module, len(data))
        self._parsed.add(path)
        return module

    def drop_trees(self) -> None:
        """Drop all syntax trees, which are no longer needed."""
        self._parsed_modules.clear()

    def _parse_module(self, name: str, path: str, source: bytes) -> Module:
        # A loading function may get its name in another function.
        holds_loads = has_loading_word(source) or bool(find_renamed_imports(source))
        skeleton = None if holds_loads else parse_skeleton(source)
        tree, bodies = skeleton or (self._read_tree(path, source), NOTHING_OMITTED)
        module = Module(name, path, self.package_of(path), tree, left_out=bodies)
        for statement in all_statements(tree.body):
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    local = alias.asname or alias.name.partition(".")[0]
                    module.imported[local] = alias.name if alias.asname else local
            elif isinstance(statement, ast.ImportFrom):
                base = "." * statement.level + (statement.module or "")
                origin = self.resolve_name(base, module.package)
                for alias in statement.names:
                    module.imported[alias.asname or alias.name] = f"{origin}.{alias.name}"
        if holds_loads:
            module.loading_lines = normalize_loads(
                tree.body,
                source,
                module.imported,
                lambda dotted: self.find_owner(dotted) is not None,
            )
        module.scope = make_scope(tree.body)
        module.scope.bound = {
            "__name__": frozenset({name}),
            "__package__": frozenset({module.package}),
        }
        for node in definitions(tree.body):
            if isinstance(node, ast.ClassDef):
                module.classes.setdefault(node.name, node)
            else:
                # `if x: def f(): ... else: def f(): ...`: the longer one is not the fallback.
                child = module.functions.get(node.name)
                if child is None or len(self.complete_function(module, node).body) > len(
                    self.complete_function(module, child).body
                ):
                    module.functions[node.name] = node
        return module

    def _read_tree(self, path: str, source: bytes, line: int = 1) -> ast.Module:
        """Parse `source`, which begins at `line` of the file. Raises Unparsable."""
        read = read_tree(source)
        if read.lost:
            self.partial[path] = _describe_omitted([line - 1 + number for number in read.lost])
        return simplify_tree(read.tree, source, strip_annotations=has_loading_word(source))

    def complete_function(self, module: Module, function: Function) -> Function:
        """Return `function` of `module`, after parsing its body if that was deferred."""
        text = module.left_out.take(function)
        if text is not None:
            try:
                tree = self._read_tree(module.path, text, first_line(function))
                fill_body(function, tree)
            except Unparsable as error:
                self.partial[module.path] = f"a function cannot be read: {error.reason}"
        return function

    def find_function(
        self, module: Module, called: ast.expr, worth: Callable[[str], bool] = bool
    ) -> tuple[Module, Function] | None:
        """Return the function of this distribution that `called` names in `module`, if it is one.

        For a class, this is its `__init__`. Other modules are parsed only if `worth` accepts them.
        """
        dotted = dotted_name(called)
        if dotted is None:
            return None
        first, _, rest = dotted.partition(".")
        if not rest:
            return self._find_defined(module, first, 0, worth)
        if first not in module.imported:
            return None
        return self._find_global(f"{module.imported[first]}.{rest}", 0, worth)

    def _find_defined(
        self, module: Module, name: str, depth: int, worth: Callable[[str], bool]
    ) -> tuple[Module, Function] | None:
        if name in module.functions:
            return module, self.complete_function(module, module.functions[name])
        if name in module.classes:
            for node in module.classes[name].body:
                if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    return module, self.complete_function(module, node)
            return None
        origin = module.imported.get(name)
        return None if origin is None else self._find_global(origin, depth, worth)

    def _find_global(
        self, dotted: str, depth: int, worth: Callable[[str], bool]
    ) -> tuple[Module, Function] | None:
        owner = self.find_owner(dotted)
        if owner is None or not owner[1] or "." in owner[1] or depth >= MOST_REEXPORTS:
            return None
        module = self.module(owner[0]) if worth(owner[0]) else None
        return None if module is None else self._find_defined(module, owner[1], depth + 1, worth)

    def list_submodules(self, package: str) -> list[str]:
        """Return the names of the modules and extensions in a package."""
        start = f"{package}."
        names = {
            name.removeprefix(start)
            for name in (*self.modules, *self.extensions)
            if name.startswith(start) and "/" not in name
        }
        return sorted(name for name in names if "." not in name)

    def _list_package(self, module: Module, call: ast.Call) -> Value | None:
        """Return the names that `pkgutil` finds in a package of the distribution."""
        arguments = [*call.args, *(word.value for word in call.keywords)]
        match arguments[0] if arguments else None:
            case ast.Name(id="__path__"):
                package = module.package
            case ast.Attribute(value=ast.Name(id=name), attr="__path__") if name in module.imported:
                package = module.imported[name]
            case _:
                return None
        prefix = f"{package}." if len(arguments) > 1 else ""
        return frozenset(f"{prefix}{name}" for name in self.list_submodules(package))

    def make_evaluator(
        self, module: Module, scope: Scope, depth: int = 0, outer: Evaluator | None = None
    ) -> Evaluator:
        """Return an evaluator that also follows calls of the distribution's own functions."""

        def follow(call: ast.Call, evaluator: Evaluator) -> Value | None:
            if last_name(call.func) in ("iter_modules", "walk_packages"):
                return self._list_package(module, call)
            callee = self.find_function(module, call.func)
            if callee is None:
                return None
            if depth >= DEEPEST_CALL:
                return UNKNOWN
            defining, function = callee
            inner = defining.scope_inside(function, bind_arguments(function, call, evaluator))
            results = self.make_evaluator(defining, inner, depth + 1, evaluator)
            value: Value = NOTHING
            for result in defining.returned_values(function):
                value |= results.value(result)
            return value

        return Evaluator(module.path, scope, follow, outer)


def _describe_omitted(lines: Sequence[int]) -> str:
    if len(lines) == 1:
        return f"the statement in line {lines[0]} is no Python that is known here"
    shown = ", ".join(str(line) for line in lines[:3]) + (", ..." if len(lines) > 3 else "")
    return f"the statements in lines {shown} are no Python that is known here"


def _make_hidden_name(name: str, path: str) -> str:
    """Return a name that no import can write, in the package of `name`, for a hidden file."""
    folder, dot, _ = name.rpartition(".")
    return f"{folder}{dot}{path.replace('.', '/')}"


def _module_name(path: str, site: str) -> str:
    """Return the name that Python imports a file by: `a/b/__init__.py` is `a.b`."""
    inside = path[len(site) :]
    folder, _, file = inside.rpartition("/")
    stem = file.partition(".")[0]
    return ".".join(
        part for part in (*folder.split("/"), "" if stem == "__init__" else stem) if part
    )
