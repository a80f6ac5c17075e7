"""The Python files of one distribution: their modules, what they import, and what they call."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from buildmatrix.python_imports.excerpt import excerpt
from buildmatrix.python_imports.module import Module, bind
from buildmatrix.python_imports.parser import Unparsable, has_many_signs
from buildmatrix.python_imports.reading import normalized, simplified, startup_lines
from buildmatrix.python_imports.repair import read_tree
from buildmatrix.python_imports.skeleton import (
    fill,
    first_line,
    parse_skeleton,
)
from buildmatrix.python_imports.source import (
    LARGEST_SOURCE,
    Outline,
    has_loading_word,
    renames_imports,
    runs_at_startup,
)
from buildmatrix.python_imports.spelling import respell
from buildmatrix.python_imports.syntax import Function, all_statements, definitions, last_name
from buildmatrix.python_imports.values import (
    NOTHING,
    UNKNOWN,
    Evaluator,
    Scope,
    Value,
    scope_of,
)

#: Bytes of source of which the syntax trees are kept; a tree takes some 20 times as much. With half
#: of it, every fourth file of a large environment is parsed twice.
KEPT_SOURCE = 256 << 10
#: Bytes of source that are parsed for one distribution: a second.
MOST_SOURCE = 6 << 20
#: The same for all distributions of a tree together: those with little source come first. Some 200
#: of them may use 170 MB, and do use a quarter of what they may.
MOST_SOURCE_IN_ALL = 256 << 20
#: Names that lead to names in other modules.
MOST_REEXPORTS = 4
#: Calls inside of calls whose results are followed.
DEEPEST_CALL = 6


class Program:
    """The modules of one distribution, at most `budget` bytes of which are parsed.

    `site` is the folder that its names begin at, with a slash at its end or empty; `read` gives
    the bytes of a file, or None.
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
        #: Dotted name → path, and the other way round: every file has a name of its own.
        self.modules: dict[str, str] = {}
        self.names: dict[str, str] = {}
        for path in sorted(outlines):  # `a/b.py` before `a/b/__init__.py`, which Python prefers
            name = _dotted(path, site)
            if "." in path.rpartition("/")[2].removesuffix(".pyc").removesuffix(".py"):
                name = _beside(name, path)
            elif name in self.modules:
                hidden = self.modules[name]
                self.names[hidden] = _beside(name, hidden)
                self.modules[self.names[hidden]] = hidden
            self.modules[name] = path
            self.names[path] = name
        #: Dotted name → paths of the extension modules of that name.
        self.extensions: dict[str, list[str]] = {}
        for path in self.binaries:
            if path.endswith(".so"):
                self.extensions.setdefault(_dotted(path, site), []).append(path)
        #: Folder without `__init__` → packages with one that it lies in.
        self._gaps: dict[str, list[str]] = {}
        for parent in sorted({name.rpartition(".")[0] for name in self.modules}):
            while parent:
                above, _, last = parent.rpartition(".")
                if above in self.modules and parent not in self.modules:
                    packages = self._gaps.setdefault(last, [])
                    if above not in packages:
                        packages.append(above)
                parent = above
        #: What the names of all modules and extensions, and of redirected ones, begin with.
        self._first_names = self._gaps.keys() | {
            name.partition(".")[0] for name in (*self.modules, *self.extensions)
        }
        self._parsed_modules: dict[str, tuple[Module, int]] = {}
        #: Files that are larger than what is left to be parsed.
        self._refused: set[str] = set()
        #: Files whose trees were there already; they may have been dropped since.
        self._parsed: set[str] = set()
        #: Files that could not be parsed, and those that could in part, with the reason.
        self.unparsed: dict[str, str] = {}
        self.partial: dict[str, str] = {}
        #: Whether files were left out because there are too many.
        self.incomplete = False

    def roots(self) -> list[str]:
        """Modules that users import first: those in no package that has an `__init__`.

        A lone module below a folder without `__init__` is a script or an example;
        `a/b/__init__.py` below a folder `a` without one is a package of a namespace.
        """
        packages = [
            name
            for name, path in self.modules.items()
            if path.endswith("/__init__.py")
            # `site` looks at those in the folder of its own.
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
            if name.rpartition(".")[0] not in self.modules and self._importable(name)
        )

    def _importable(self, name: str) -> bool:
        return name in self.modules or self.is_importable(name)

    def is_importable(self, name: str) -> bool:
        """Whether the extension `name` looks like a Python module, by its files (PEP 3149)."""
        return any(
            ".cpython-" in path or ".abi3." in path or not path.rpartition("/")[2].startswith("lib")
            for path in self.extensions[name]
        )

    def owner_of(self, dotted: str) -> tuple[str, str] | None:
        """The longest prefix that is a module or an extension, and the rest; None for foreign."""
        if dotted in self.modules:
            return dotted, ""
        if dotted.partition(".")[0] not in self._first_names:
            return None
        for candidate in (dotted, *self._redirected(dotted)):
            name, rest = candidate, ""
            while name:
                if name in self.modules or name in self.extensions:
                    return name, rest
                name, _, last = name.rpartition(".")
                rest = f"{last}.{rest}".rstrip(".")
        return None

    def _redirected(self, dotted: str) -> Iterator[str]:
        """Names of a package that a redirector puts in the place of another one's.

        Such a package lies in a folder without `__init__` inside of a package that has one
        (numba_cuda/numba/cuda stands for numba.cuda).
        """
        first = dotted.partition(".")[0]
        for above in self._gaps.get(first, ()):
            yield f"{above}.{dotted}"

    def absolute(self, name: str, package: str) -> str:
        """`..a.b` of a module in `package` as an absolute dotted name."""
        if not name.startswith("."):
            return name
        level = len(name) - len(name.lstrip("."))
        parts = package.split(".")
        base = ".".join(parts[: max(0, len(parts) - level + 1)])
        return f"{base}.{name[level:]}".strip(".")

    def source(self, path: str) -> bytes | None:
        """The text of a file of the distribution; None when it cannot be had."""
        data = self._read(path)
        if data is None:
            return None
        return startup_lines(data) if runs_at_startup(path) else normalized(data)

    def module(self, name: str) -> Module | None:
        """The parsed module `name`; None when there is none, or it cannot be had."""
        if name in self._parsed_modules:
            # Those that were not used for longest go first.
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
            data = excerpt(data)
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
        # Before the next one is parsed. A large one takes 20 MB: it shares that with no other.
        room = KEPT_SOURCE if len(data) <= KEPT_SOURCE else 0
        while (
            self._parsed_modules and sum(size for _, size in self._parsed_modules.values()) > room
        ):
            del self._parsed_modules[next(iter(self._parsed_modules))]
        try:
            module = self._module(name, path, data)
        except Unparsable as error:
            self.unparsed[path] = error.reason
            return None
        except RecursionError:
            self.unparsed[path] = "nested too deep to be followed"
            return None
        self._parsed_modules[name] = (module, len(data))
        self._parsed.add(path)
        return module

    def forget(self) -> None:
        """Let go of all syntax trees, which nothing else needs any more."""
        self._parsed_modules.clear()

    def _module(self, name: str, path: str, source: bytes) -> Module:
        # What is a load in one function may get its name in another one.
        holds_loads = has_loading_word(source) or renames_imports(source)
        without_bodies = None if holds_loads else parse_skeleton(source)
        if without_bodies is not None:
            module = Module(name, path, without_bodies[0], left_out=without_bodies[1])
        else:
            module = Module(name, path, self._read_tree(path, source))
        tree = module.tree
        for statement in all_statements(tree.body):
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    local = alias.asname or alias.name.partition(".")[0]
                    module.imported[local] = alias.name if alias.asname else local
            elif isinstance(statement, ast.ImportFrom):
                base = "." * statement.level + (statement.module or "")
                origin = self.absolute(base, module.package)
                for alias in statement.names:
                    module.imported[alias.asname or alias.name] = f"{origin}.{alias.name}"
        if holds_loads:
            module.loading_lines = respell(
                tree.body, source, module.imported, lambda dotted: self.owner_of(dotted) is not None
            )
        module.scope = scope_of(tree.body)
        module.scope.bound = {
            "__name__": frozenset({name}),
            "__package__": frozenset({module.package}),
        }
        for node in definitions(tree.body):
            if isinstance(node, ast.ClassDef):
                module.classes.setdefault(node.name, node)
            else:
                # `if x: def f(): ... else: def f(): ...`: the longer one is no fallback.
                child = module.functions.get(node.name)
                if child is None or len(self.whole(module, node).body) > len(
                    self.whole(module, child).body
                ):
                    module.functions[node.name] = node
        return module

    def _read_tree(self, path: str, source: bytes, line: int = 1) -> ast.Module:
        """The tree of `source`, which begins at `line` of the file. Raises Unparsable."""
        read = read_tree(source)
        if read.lost:
            self.partial[path] = _left_out([line - 1 + number for number in read.lost])
        return simplified(read.tree, source, strip_annotations=has_loading_word(source))

    def whole(self, module: Module, function: Function) -> Function:
        """`function` of `module`, whose body is parsed if it was left out before."""
        text = module.left_out.take(function)
        if text is not None:
            try:
                tree = self._read_tree(module.path, text, first_line(function))
                fill(function, tree)
            except Unparsable as error:
                self.partial[module.path] = f"a function cannot be read: {error.reason}"
        return function

    def function(
        self, module: Module, called: ast.expr, worth: Callable[[str], bool] = bool
    ) -> tuple[Module, Function] | None:
        """The function of this distribution that `called` names in `module`, if it is one.

        For a class it is its `__init__`. Other modules are parsed where they are `worth` it.
        """
        match called:
            case ast.Name(id=name):
                return self._defined(module, name, 0, worth)
            case ast.Attribute(value=ast.Name() | ast.Attribute()):
                first, *rest = ast.unparse(called).split(".")
                if first in module.imported:
                    return self._global(".".join([module.imported[first], *rest]), 0, worth)
        return None

    def _defined(
        self, module: Module, name: str, depth: int, worth: Callable[[str], bool]
    ) -> tuple[Module, Function] | None:
        if name in module.functions:
            return module, self.whole(module, module.functions[name])
        if name in module.classes:
            for node in module.classes[name].body:
                if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    return module, self.whole(module, node)
            return None
        origin = module.imported.get(name)
        return None if origin is None else self._global(origin, depth, worth)

    def _global(
        self, dotted: str, depth: int, worth: Callable[[str], bool]
    ) -> tuple[Module, Function] | None:
        owner = self.owner_of(dotted)
        if owner is None or not owner[1] or "." in owner[1] or depth >= MOST_REEXPORTS:
            return None
        module = self.module(owner[0]) if worth(owner[0]) else None
        return None if module is None else self._defined(module, owner[1], depth + 1, worth)

    def submodules(self, package: str) -> list[str]:
        """Names of the modules and extensions that lie in a package."""
        start = f"{package}."
        names = {
            name.removeprefix(start)
            for name in (*self.modules, *self.extensions)
            if name.startswith(start) and "/" not in name
        }
        return sorted(name for name in names if "." not in name)

    def _listed(self, module: Module, call: ast.Call) -> Value | None:
        """The names that `pkgutil` finds in a package of the distribution."""
        arguments = [*call.args, *(word.value for word in call.keywords)]
        match arguments[0] if arguments else None:
            case ast.Name(id="__path__"):
                package = module.package
            case ast.Attribute(value=ast.Name(id=name), attr="__path__") if name in module.imported:
                package = module.imported[name]
            case _:
                return None
        prefix = f"{package}." if len(arguments) > 1 else ""
        return frozenset(f"{prefix}{name}" for name in self.submodules(package))

    def evaluator(
        self, module: Module, scope: Scope, depth: int = 0, outer: Evaluator | None = None
    ) -> Evaluator:
        """An evaluator that also follows calls of the distribution's own functions."""

        def follow(call: ast.Call, evaluator: Evaluator) -> Value | None:
            if last_name(call.func) in ("iter_modules", "walk_packages"):
                return self._listed(module, call)
            callee = self.function(module, call.func)
            if callee is None:
                return None
            if depth >= DEEPEST_CALL:
                return UNKNOWN
            defining, function = callee
            inner = defining.scope_inside(function, bind(function, call, evaluator))
            results = self.evaluator(defining, inner, depth + 1, evaluator)
            value: Value = NOTHING
            for result in defining.returned(function):
                value |= results.value(result)
            return value

        return Evaluator(module.path, scope, follow, outer)


def _left_out(lines: Sequence[int]) -> str:
    if len(lines) == 1:
        return f"the statement in line {lines[0]} is no Python that is known here"
    shown = ", ".join(str(line) for line in lines[:3]) + (", ..." if len(lines) > 3 else "")
    return f"the statements in lines {shown} are no Python that is known here"


def _beside(name: str, path: str) -> str:
    """A name that no import can write, in the package of `name`, for a file that none finds."""
    folder, dot, _ = name.rpartition(".")
    return f"{folder}{dot}{path.replace('.', '/')}"


def _dotted(path: str, site: str) -> str:
    """The name that Python imports a file by: `a/b/__init__.py` is `a.b`."""
    inside = path[len(site) :]
    folder, _, file = inside.rpartition("/")
    stem = file.partition(".")[0]
    return ".".join(
        part for part in (*folder.split("/"), "" if stem == "__init__" else stem) if part
    )
