"""Which libraries an `import` of a distribution loads, and whether the import survives without.

Followed are the statements that run when a module is imported: imports inside of the distribution,
the bodies of classes, and the functions of the distribution that are called on the way, with the
constants that they are called with. Conditions that do not depend on the system are taken to be
open: what stands behind one is chosen at run time.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate

from buildmatrix.inventory.model import Reach
from buildmatrix.inventory.python_program import Module, Program, bind
from buildmatrix.inventory.python_values import UNKNOWN, Scope, Value, truth
from buildmatrix.inventory.syntax import children, walk

#: Calls inside of calls that are followed at import.
DEEPEST_CALL = 8
#: Modules that are searched for calls of one module's functions.
MOST_CALLERS = 500
#: Statements that are followed in one distribution.
MOST_STATEMENTS = 200_000

#: Call → exception that it raises when the library cannot be loaded; none for a search.
RAISES: Mapping[str, str | None] = {
    "CDLL": "OSError",
    "PyDLL": "OSError",
    "LoadLibrary": "OSError",
    "dlopen": "OSError",
    "load_library": "OSError",
    "load_op_library": "OSError",
    "find_library": None,
    "load_nvidia_dynamic_lib": "DynamicLibNotFoundError",
    # Extension modules by their path, which is the second argument.
    "spec_from_file_location": "ImportError",
    "ExtensionFileLoader": "ImportError",
    "load_dynamic": "ImportError",
    # No library, but an operator of torch that one must have registered: `name::operator`.
    "register_fake": "RuntimeError",
    "impl_abstract": "RuntimeError",
}
_OPERATORS = frozenset({"register_fake", "impl_abstract"})
_BY_PATH = frozenset({"spec_from_file_location", "ExtensionFileLoader", "load_dynamic"})
_DEFINING = frozenset({"define", "custom_op", "triton_op"})
_ANYTHING = frozenset({"Exception", "BaseException", ""})
_BASES = {
    "ImportError": _ANYTHING,
    "OSError": _ANYTHING | {"EnvironmentError", "IOError"},
    "RuntimeError": _ANYTHING,
    # Of cuda-pathfinder.
    "DynamicLibNotFoundError": _ANYTHING | {"RuntimeError"},
}


@dataclass(frozen=True, slots=True)
class Handler:
    """One `except`: what it catches (an empty name is everything), and what it raises instead."""

    catches: frozenset[str]
    #: None: nothing, the exception ends here; an empty name: the same one again.
    raises: str | None = None


#: The handlers of one `try`; a condition is taken for a handler that catches everything.
Guard = tuple[Handler, ...]
CONDITION: Guard = (Handler(frozenset({""})),)


def survives(error: str | None, guards: Sequence[Guard]) -> bool:
    """Whether `error` is caught, or cannot happen, so that the import goes on."""
    if error is None:
        return True
    for guard in reversed(guards):
        for handler in guard:
            if handler.catches & (_BASES.get(error, _ANYTHING) | {error}):
                if handler.raises is None:
                    return True
                error = handler.raises or error
                break
    return False


def guard_of(statement: ast.Try, scope: Iterable[ast.stmt]) -> Guard:
    """The handlers of `statement`; `scope` is the body of the function or module around it."""
    raised_later = {
        node.exc.id
        for outer in scope
        for node in walk(outer)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name)
    }
    return tuple(_handler(handler, raised_later) for handler in statement.handlers)


def _handler(handler: ast.ExceptHandler, raised_later: set[str]) -> Handler:
    catches = frozenset(exception_names(handler.type))
    for statement in handler.body:
        match statement:
            case ast.Raise(exc=None):
                return Handler(catches, "")
            case ast.Raise(exc=ast.Name(id=name)) if name == handler.name:
                return Handler(catches, "")
            case ast.Raise(exc=ast.Call(func=raised)) | ast.Raise(exc=ast.expr() as raised):
                return Handler(catches, _last(raised) or "Exception")
            case ast.Assign(targets=[ast.Name(id=kept)], value=ast.Name(id=name)) if (
                name == handler.name and kept in raised_later
            ):
                return Handler(catches, "")
    return Handler(catches)


def exception_names(node: ast.expr | None) -> Iterator[str]:
    """The last parts of the names of exceptions; an empty one for a bare `except`."""
    if node is None:
        yield ""
    elif isinstance(node, ast.Tuple):
        for one in node.elts:
            yield _last(one) or "?"
    else:
        yield _last(node) or "?"


def defines_operators(module: Module) -> bool:
    """Whether a module defines operators of torch itself, in Python."""
    for node in walk(module.tree):
        if isinstance(node, ast.Call):
            if _last(node.func) in _DEFINING:
                return True
            if _last(node.func) == "Library" and any(
                isinstance(one, ast.Constant) and one.value in ("DEF", "FRAGMENT")
                for one in node.args
            ):
                return True
    return False


def is_load(node: ast.Call) -> str | None:
    """The name of the call when it loads or searches a library, as in `RAISES`."""
    name = _last(node.func)
    if name not in RAISES or not (node.args or node.keywords):
        return None
    if isinstance(node.func, ast.Attribute) and _last(node.func.value) in ("windll", "oledll"):
        return None
    argument = asked_for(node)
    # CDLL(None) is the process itself.
    return None if isinstance(argument, ast.Constant) and argument.value is None else name


def is_silent(call: str) -> bool:
    """Whether a call says nothing of libraries unless one can be read off it."""
    return call in _OPERATORS or call in _BY_PATH


def asked_for(node: ast.Call) -> ast.expr:
    """The argument of a load that names the library."""
    arguments = [*node.args, *(word.value for word in node.keywords)]
    second = _last(node.func) in _BY_PATH and len(arguments) > 1
    return arguments[1 if second else 0]


def load_names(call: str, value: Value) -> tuple[str, ...]:
    """Names of the libraries that a load asks for; none when they are computed."""
    named = {one for one in value if one.strip("*/.")}
    if call in _OPERATORS:
        return tuple(sorted(one for one in named if "::" in one))
    if call in _BY_PATH:
        return tuple(sorted(one for one in named if ".so" in one))
    if call == "find_library":
        named = {f"lib{one}.so*" for one in named}
    elif call == "load_nvidia_dynamic_lib":
        named = {f"lib{one}.so*" for one in named if not one.startswith("lib")}
    return tuple(sorted(named))


@dataclass(frozen=True, slots=True)
class Reached:
    """How far an import gets to something, and the place in the source that leads there."""

    reach: Reach
    #: `path:line`
    place: str


class Walk:
    """Follows the imports of one program from its roots."""

    def __init__(self, program: Program, loading: Mapping[str, Loading]) -> None:
        self._program = program
        self._graph = _Graph(program, loading)
        #: Path of a binary → how it is reached.
        self.binaries: dict[str, Reached] = {}
        #: (path, line) of a call that loads → how it is reached, and the names seen there.
        self.loads: dict[tuple[str, int], tuple[Reach, frozenset[str]]] = {}
        self._ahead: deque[tuple[str, tuple[Guard, ...]]] = deque()
        self._done: dict[str, set[tuple[bool, bool]]] = {}
        self._called: set[tuple[str, int, tuple[bool, bool], tuple[tuple[str, Value], ...]]] = set()
        self._statements = 0

    def run(self) -> None:
        """Follow everything that leads to a library."""
        for root in self._program.roots():
            self._import(root, (), f"{self._path_of(root)}:1")
        while self._ahead:
            name, guards = self._ahead.popleft()
            state = _state(guards)
            done = self._done.setdefault(name, set())
            if any(all(a <= b for a, b in zip(one, state, strict=True)) for one in done):
                continue
            if not self._graph.leads_to_more(name):
                continue
            done.add(state)
            self._graph.visited(name, unguarded=not any(state))
            module = self._program.module(name)
            if module is None:
                continue
            try:
                _Run(self, module, module.scope, module.tree.body, guards, 0).block(
                    module.tree.body
                )
            except RecursionError:
                self._program.unparsed[module.path] = "nested too deep to be followed"
        for name, paths in self._program.extensions.items():
            if self._graph.is_mentioned(name) or self._program.is_importable(name):
                for path in paths:
                    self.binaries.setdefault(path, Reached("lazy", ""))

    def _path_of(self, name: str) -> str:
        program = self._program
        return program.modules.get(name) or program.extensions[name][0]

    def _import(self, dotted: str, guards: tuple[Guard, ...], place: str) -> None:
        """An import statement for `dotted`, whose parents are imported first."""
        owner = self._program.owner_of(dotted)
        if owner is None:
            return
        parts = owner[0].split(".")
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            if name in self._program.extensions and name not in self._program.modules:
                for path in self._program.extensions[name]:
                    self._reach(path, survives("ImportError", guards), place)
                if not survives("ImportError", guards):
                    self._graph.resolved(name)
            elif name in self._program.modules:
                self._ahead.append((name, guards))

    def _reach(self, path: str, harmless: bool, place: str) -> None:
        known = self.binaries.get(path)
        if known is None or (known.reach != "import" and not harmless):
            self.binaries[path] = Reached("guarded" if harmless else "import", place)

    def step(self) -> bool:
        """Count a statement; False when there were too many."""
        self._statements += 1
        return self._statements <= MOST_STATEMENTS

    def imports(self, module: Module, node: ast.stmt, guards: tuple[Guard, ...]) -> None:
        """Follow an import statement of `module`."""
        place = f"{module.path}:{node.lineno}"
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._import(alias.name, guards, place)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            origin = self._program.absolute(base, module.package)
            self._import(origin, guards, place)
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                owner = self._program.owner_of(inner)
                if owner is not None and not owner[1]:
                    self._import(inner, guards, place)

    def call(self, run: _Run, node: ast.Call, guards: tuple[Guard, ...]) -> None:
        """Follow a call: into a function of the distribution, an import, or a load."""
        program, module = self._program, run.module
        evaluator = program.evaluator(module, run.scope)
        found = program.function(module, node.func, self._graph.is_worth_calling)
        if found is not None:
            where, function = found
            bound = bind(function, node, evaluator)
            key = (where.path, function.lineno, _state(guards), tuple(sorted(bound.items())))
            if key in self._called or run.depth >= DEEPEST_CALL:
                return
            self._called.add(key)
            scope = where.scope_inside(function, bound)
            _Run(self, where, scope, function.body, guards, run.depth + 1).block(function.body)
            return
        name = _last(node.func)
        if name in ("import_module", "__import__") and node.args:
            for dotted in evaluator.value(node.args[0]) - UNKNOWN:
                target = program.absolute(dotted, module.package)
                self._import(target, guards, f"{module.path}:{node.lineno}")
            return
        call = is_load(node)
        if call is not None:
            names = load_names(call, evaluator.value(asked_for(node)))
            if names or not is_silent(call):
                self._load(module, node, names, survives(RAISES[call], guards))

    def _load(self, module: Module, node: ast.Call, names: tuple[str, ...], harmless: bool) -> None:
        place = (module.path, node.lineno)
        reach, known = self.loads.get(place, ("guarded", frozenset[str]()))
        self.loads[place] = (reach if harmless else "import", known | set(names))
        if _last(node.func) in _OPERATORS or _last(node.func) == "find_library":
            return
        for path in self._graph.files(names):
            self._reach(path, harmless, f"{module.path}:{node.lineno}")


@dataclass(frozen=True)
class _Run:
    """One body of statements that is being followed."""

    walk: Walk
    module: Module
    scope: Scope
    #: The whole body of the module or function.
    whole: Sequence[ast.stmt]
    guards: tuple[Guard, ...]
    depth: int

    def block(self, body: Sequence[ast.stmt], *guards: Guard) -> bool:
        """Follow statements behind further `guards`; False when they end the function for sure."""
        for number, statement in enumerate(body):
            if not self.walk.step():
                return False
            if not self._statement(statement, body[number + 1 :], guards):
                return False
        return True

    def _statement(
        self, node: ast.stmt, after: Sequence[ast.stmt], guards: tuple[Guard, ...]
    ) -> bool:
        match node:
            case ast.Import() | ast.ImportFrom():
                self.walk.imports(self.module, node, (*self.guards, *guards))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for one in node.decorator_list:
                    self._calls(one, guards)
            case ast.ClassDef():
                for one in (*node.decorator_list, *node.bases):
                    self._calls(one, guards)
                self.block(node.body, *guards)
            case ast.If():
                return self._if(node, guards)
            case ast.Try():
                self._try(node, after, guards)
            case ast.With() | ast.AsyncWith():
                inner = guards
                for item in node.items:
                    self._calls(item.context_expr, guards)
                    inner = (*inner, *suppressed(item.context_expr))
                return self.block(node.body, *inner)
            case ast.For() | ast.AsyncFor() | ast.While():
                self._calls(node.test if isinstance(node, ast.While) else node.iter, guards)
                self.block(node.body, *guards)
                self.block(node.orelse, *guards)
            case ast.Match():
                self._calls(node.subject, guards)
                for case in node.cases:
                    self.block(case.body, *guards, CONDITION)
            case ast.Return() | ast.Raise():
                self._calls(node, guards)
                return False
            case _:
                self._calls(node, guards)
        return True

    def _if(self, node: ast.If, guards: tuple[Guard, ...]) -> bool:
        self._calls(node.test, guards)
        known = truth(node.test)
        if known is not None:
            return self.block(node.body if known else node.orelse, *guards)
        first = self.block(node.body, *guards, CONDITION)
        second = self.block(node.orelse, *guards, CONDITION)
        for statement in _common_imports(node.body, node.orelse):
            self.walk.imports(self.module, statement, (*self.guards, *guards))
        return first or second

    def _try(self, node: ast.Try, after: Sequence[ast.stmt], guards: tuple[Guard, ...]) -> None:
        guard = guard_of(node, self.whole)
        if _needed_afterwards(node, after):
            guard = ()
        self.block(node.body, *guards, guard)
        for handler in node.handlers:
            self.block(handler.body, *guards, CONDITION)
        self.block(node.orelse, *guards, CONDITION if guard else ())
        self.block(node.finalbody, *guards)

    def _calls(self, node: ast.AST, guards: tuple[Guard, ...]) -> None:
        ahead: list[ast.AST] = [node]
        while ahead:
            one = ahead.pop()
            if isinstance(one, ast.Lambda):
                continue
            if isinstance(one, ast.Call):
                self.walk.call(self, one, (*self.guards, *guards))
            ahead.extend(children(one))


def _state(guards: tuple[Guard, ...]) -> tuple[bool, bool]:
    """What is caught: a module that was followed with less caught needs no second time."""
    return survives("ImportError", guards), survives("OSError", guards)


def suppressed(node: ast.expr) -> Iterator[Guard]:
    """The guard of a `with contextlib.suppress(...)`."""
    if isinstance(node, ast.Call) and _last(node.func) == "suppress":
        yield (Handler(frozenset(_last(one) or "?" for one in node.args)),)


def _common_imports(one: Sequence[ast.stmt], other: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Imports that stand in both branches of a condition."""
    if not other:
        return
    second = {ast.dump(node) for node in other if isinstance(node, (ast.Import, ast.ImportFrom))}
    for node in one:
        if isinstance(node, (ast.Import, ast.ImportFrom)) and ast.dump(node) in second:
            yield node


def _needed_afterwards(node: ast.Try, after: Sequence[ast.stmt]) -> bool:
    """Whether what the body assigns is used behind the `try` although no handler assigns it.

    Catching the exception is of no use then: a NameError or KeyError follows.
    """
    if not any(isinstance(one, ast.Call) for line in node.body for one in walk(line)):
        return False
    assigned = set(_targets(node.body))
    for handler in node.handlers:
        assigned -= set(_targets(handler.body))
        if any(isinstance(line, (ast.Return, ast.Raise)) for line in handler.body):
            return False
    assigned -= set(_targets(node.finalbody))
    if not any("[" in one for one in assigned):
        # Only elements of a table: a plain name may have been given a value before.
        return False
    for line in after:
        if not isinstance(line, (ast.Assign, ast.Expr, ast.AnnAssign)):
            continue
        for one in walk(line):
            loaded = isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Load)
            if loaded and ast.unparse(one) in assigned:
                return True
        assigned -= set(_targets([line]))
        if not assigned:
            return False
    return False


def _targets(body: Iterable[ast.stmt]) -> Iterator[str]:
    for line in body:
        for node in walk(line):
            if isinstance(node, (ast.Name, ast.Subscript)) and isinstance(node.ctx, ast.Store):
                yield ast.unparse(node)


@dataclass(frozen=True, slots=True)
class Loading:
    """Where a module that holds loads may run them."""

    #: Functions and classes that load a library, or call one that does.
    functions: frozenset[str]
    #: Whether a statement at the module's level loads, or calls one of these.
    at_import: bool


def loading(module: Module) -> Loading:
    """Where `module` may load libraries."""
    bodies: dict[str, ast.AST] = {**module.functions, **module.classes}
    calls = {
        name: {_last(one.func) for one in walk(node) if isinstance(one, ast.Call)}
        for name, node in bodies.items()
    }
    found = {name for name, called in calls.items() if called & RAISES.keys()}
    while more := {name for name, called in calls.items() if called & found} - found:
        found |= more
    at_import = any(_loads_or_calls(node, found) for node in module.tree.body)
    return Loading(frozenset(found), at_import)


def _loads_or_calls(statement: ast.stmt, functions: set[str]) -> bool:
    """Whether a statement at a module's level loads a library or calls one of `functions`."""
    ahead: list[ast.AST] = [statement]
    while ahead:
        node = ahead.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            ahead.extend(node.decorator_list)
            continue
        if isinstance(node, ast.Call) and (
            _last(node.func) in RAISES or _last(node.func) in functions
        ):
            return True
        ahead.extend(children(node))
    return False


class _Graph:
    """What may import what, from the outlines: which modules are worth following at all."""

    def __init__(self, program: Program, loading: Mapping[str, Loading]) -> None:
        self._program = program
        #: Module or extension → modules that may import it.
        self._importers: dict[str, set[str]] = {}
        self._with_loads = loading.keys()
        #: What is still to be reached.
        self._wanted: set[str] = set()
        for path, outline in program.outlines.items():
            name = program.names[path]
            package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
            for written in outline.imports:
                owner = program.owner_of(program.absolute(written, package))
                if owner is not None:
                    self._edge(name, owner[0])
        self._wanted.update(name for name in program.extensions if self._importers.get(name))
        for name, one in loading.items():
            if one.at_import:
                self._wanted.add(name)
            self._wanted.update(self._callers(name, one.functions))
        self._leading: set[str] | None = None

    def _edge(self, name: str, target: str) -> None:
        while target:
            # Parents are imported before; a module that imports its own parent adds nothing.
            if name != target and not name.startswith(f"{target}."):
                self._importers.setdefault(target, set()).add(name)
            target = target.rpartition(".")[0]

    def _callers(self, name: str, functions: frozenset[str]) -> Iterator[str]:
        """Modules that may call one of `functions` of the module `name`."""
        calls = [f".{function}(".encode() for function in functions]
        imports = tuple(f".{function}" for function in functions)
        for importer in sorted(self._importers.get(name, ()))[:MOST_CALLERS]:
            path = self._program.modules.get(importer)
            if path is None:
                continue
            if any(one.endswith(imports) for one in self._program.outlines[path].imports):
                yield importer
            elif calls:
                source = self._program.source(path) or b""
                if any(call in source for call in calls):
                    yield importer

    def is_mentioned(self, name: str) -> bool:
        """Whether some module imports `name`."""
        return bool(self._importers.get(name))

    def visited(self, name: str, *, unguarded: bool) -> None:
        """A module was followed; nothing new comes of it when nothing guarded it."""
        if unguarded and name in self._wanted:
            self.resolved(name)

    def resolved(self, name: str) -> None:
        """What is known to be reached without a guard need not be looked for again."""
        if name in self._wanted:
            self._wanted.discard(name)
            self._leading = None

    def leads_to_more(self, name: str) -> bool:
        """Whether following the module may reach something that is still wanted."""
        if self._leading is None:
            self._leading = set(self._wanted)
            ahead = list(self._wanted)
            while ahead:
                for importer in self._importers.get(ahead.pop(), ()):
                    if importer not in self._leading:
                        self._leading.add(importer)
                        ahead.append(importer)
        return name in self._leading

    def is_worth_calling(self, name: str) -> bool:
        """Whether a function of the module may load something, or import what does."""
        return name in self._with_loads or self.leads_to_more(name)

    def files(self, names: Iterable[str]) -> Iterator[str]:
        """Binaries of the distribution that one of the patterns stands for."""
        for name in names:
            anchored = name.startswith("/")
            if not re.search(r"[A-Za-z0-9_]{2}", name.rpartition("/")[2].replace(".so", "")):
                continue  # `*.so` is any library.
            pattern = re.compile(translate(name.lstrip("/") if anchored else f"*/{name}"))
            for path in self._program.binaries:
                if pattern.match(path if anchored else f"/{path}"):
                    yield path


def _last(node: ast.expr) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=inner):
            return _last(inner)
    return None
