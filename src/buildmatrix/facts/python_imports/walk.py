"""Libraries that an `import` of a distribution loads, and if it survives without them.

The walk follows the statements that run when a module is imported: imports within the distribution,
the bodies of classes, and functions of the distribution called on the way, with their constant
arguments. Conditions that do not depend on the system count as open: code behind one is chosen at
run time.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from buildmatrix.facts.python_imports import Reach
from buildmatrix.facts.python_imports.conditions import Conditions, cannot_fail
from buildmatrix.facts.python_imports.graph import ImportGraph
from buildmatrix.facts.python_imports.module import (
    CONDITION,
    IMPORTS,
    OPERATORS,
    RAISES,
    Branch,
    Guard,
    LoadingCode,
    Module,
    bind_arguments,
    drop_branches,
    find_branches,
    is_needed_afterwards,
    library_argument,
    load_names,
    loading_call_name,
    make_branch,
    make_context_guard,
    make_guard,
    needs_library_name,
    survives,
)
from buildmatrix.facts.python_imports.parser import (
    children,
    evaluate_condition,
    evaluated_at_definition,
    last_name,
)
from buildmatrix.facts.python_imports.program import Program
from buildmatrix.facts.python_imports.source import runs_at_startup
from buildmatrix.facts.python_imports.values import UNKNOWN, Scope, Value

#: Depth of nested calls followed at import.
DEEPEST_CALL = 8
#: Modules that Python imports at startup, if they exist.
_AT_STARTUP = frozenset({"sitecustomize", "usercustomize"})
#: Statements followed in one distribution.
MOST_STATEMENTS = 200_000


@dataclass(frozen=True, slots=True)
class ReachedFrom:
    """Extent to which an import reaches something, and the source location that leads there."""

    reach: Reach
    #: `path:line`
    place: str


class Walk:
    """Follows the imports of one program from its roots."""

    def __init__(self, program: Program, loading: Mapping[str, LoadingCode]) -> None:
        self._program = program
        self._graph = ImportGraph(program, loading)
        #: Path of a binary to its reach.
        self.binaries: dict[str, ReachedFrom] = {}
        #: (path, line, True for a search) of a call to its reach, and its names.
        self.loads: dict[tuple[str, int, bool], tuple[Reach, frozenset[str]]] = {}
        #: Path of an unreadable or partly readable file to its reach.
        self.unread: dict[str, Reach] = {}
        self._ahead: deque[tuple[str, tuple[Guard, ...]]] = deque()
        self._followed: dict[str, set[tuple[bool, bool]]] = {}
        self._called: set[tuple[str, int, tuple[bool, bool], tuple[tuple[str, Value], ...]]] = set()
        self._statements = 0
        #: (place, number of branches) to branch to inner branches that lead to files.
        self._branches: dict[tuple[str, int], dict[int, set[tuple[Branch, ...]]]] = {}
        #: Path of a binary that only branches guard, to these branches.
        self._chosen: dict[str, tuple[Branch, ...]] = {}

    def run(self) -> None:
        """Follow everything that leads to a library."""
        for root in self._program.roots():
            # `site` reports their failures, and continues.
            is_started = root in _AT_STARTUP or runs_at_startup(self._path_of(root))
            guards: tuple[Guard, ...] = (CONDITION,) if is_started else ()
            self._import(root, guards, f"{self._path_of(root)}:1")
        while self._ahead:
            name, guards = self._ahead.popleft()
            state = _caught(guards)
            states = self._followed.setdefault(name, set())
            if any(
                all(a <= b for a, b in zip(followed, state, strict=True)) for followed in states
            ):
                continue
            if not self._graph.leads_to_more(name):
                continue
            states.add(state)
            if not any(state):
                # Following it again adds nothing.
                self._graph.resolved(name)
            module = self._program.module(name)
            if module is None:
                continue
            try:
                _FollowedBody(self, module, module.scope, module.tree.body, guards, 0).follow()
                self._follow_attributes(module, guards)
            except RecursionError:
                self._program.unparsed[module.path] = "nested too deep to be followed"
            del module  # Frees its tree before the next one is parsed.
        for path in (*self._program.partial, *self._program.unparsed):
            if followed := self._followed.get(self._program.names[path]):
                self.unread[path] = "guarded" if all(map(all, followed)) else "import"
        self._choose()
        for name, paths in self._program.extensions.items():
            if self._graph.is_mentioned(name) or self._program.is_importable(name):
                for path in paths:
                    self.binaries.setdefault(path, ReachedFrom("lazy", ""))

    def _follow_attributes(self, module: Module, guards: tuple[Guard, ...]) -> None:
        """Follow a module's `__getattr__` (PEP 562) for each submodule: users import those."""
        function = module.functions.get("__getattr__")
        if function is None or not function.args.args:
            return
        function = self._program.complete_function(module, function)
        name = function.args.args[0].arg
        names = frozenset(self._program.list_submodules(module.package))
        scope = module.scope_inside(function, {name: names})
        _FollowedBody(self, module, scope, function.body, guards, 1, name).follow()

    def _path_of(self, name: str) -> str:
        program = self._program
        return program.modules.get(name) or program.extensions[name][0]

    def _import(self, dotted: str, guards: tuple[Guard, ...], place: str) -> None:
        """Follow an import of `dotted`, whose parents are imported first."""
        owner = self._program.find_owner(dotted)
        if owner is None:
            return
        parts = owner[0].split(".")
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            if name in self._program.extensions and name not in self._program.modules:
                for path in self._program.extensions[name]:
                    self._reach(path, "ImportError", guards, place)
                if not survives("ImportError", guards):
                    self._graph.resolved(name)
            elif name in self._program.modules:
                self._ahead.append((name, guards))

    def _reach(self, path: str, error: str | None, guards: tuple[Guard, ...], place: str) -> None:
        harmless = survives(error, guards)
        if harmless and not survives(error, drop_branches(guards)):
            ways = find_branches(guards)
            for number, item in enumerate(ways):
                numbered = self._branches.setdefault((item.place, item.of), {})
                numbered.setdefault(item.number, set()).add(ways[number + 1 :])
            self._chosen.setdefault(path, ways)
        reached = self.binaries.get(path)
        if reached is None or (reached.reach != "import" and not harmless):
            self.binaries[path] = ReachedFrom("guarded" if harmless else "import", place)

    def _choose(self) -> None:
        """Mark the files of which one is loaded whatever way a run takes."""
        for path, ways in self._chosen.items():
            is_certain = all(self._is_certain(way, frozenset()) for way in ways)
            if is_certain and self.binaries[path].reach == "guarded":
                self.binaries[path] = ReachedFrom("chosen", ways[0].place)

    def _is_certain(self, item: Branch, around: frozenset[tuple[str, int]]) -> bool:
        """True if each of the ways around `item` certainly leads to a file."""
        key = (item.place, item.of)
        if key in around:
            return False
        ways = self._branches.get(key, {})
        return len(ways) == item.of and all(
            any(all(self._is_certain(inner, around | {key}) for inner in path) for path in paths)
            for paths in ways.values()
        )

    def conditions(self, run: _FollowedBody) -> Conditions:
        """Return the conditions of the body that is being followed."""
        program, module = self._program, run.module

        def is_there(named: ast.expr) -> bool:
            value = program.make_evaluator(module, run.scope).value(named)
            return any(self._graph.files(path for path in value if path.startswith("/")))

        return Conditions(program, module, run.scope, is_there)

    def step(self) -> bool:
        """Count a statement; return False at the limit."""
        self._statements += 1
        if self._statements <= MOST_STATEMENTS:
            return True
        self._program.incomplete = True
        return False

    def imports(self, module: Module, node: ast.stmt, guards: tuple[Guard, ...]) -> None:
        """Follow an import statement of `module`."""
        place = f"{module.path}:{node.lineno}"
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._import(alias.name, guards, place)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            origin = self._program.resolve_name(base, module.package)
            self._import(origin, guards, place)
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                owner = self._program.find_owner(inner)
                if owner is not None and not owner[1]:
                    self._import(inner, guards, place)

    def call(self, run: _FollowedBody, node: ast.Call, guards: tuple[Guard, ...]) -> None:
        """Follow a call: into a function of the distribution, an import, or a load."""
        program, module = self._program, run.module
        evaluator = program.make_evaluator(module, run.scope)
        callee = program.find_function(module, node.func, self._graph.is_worth_calling)
        if callee is not None:
            defining, function = callee
            bound = bind_arguments(function, node, evaluator)
            key = (defining.path, function.lineno, _caught(guards), tuple(sorted(bound.items())))
            if key in self._called or run.depth >= DEEPEST_CALL:
                return
            self._called.add(key)
            scope = defining.scope_inside(function, bound)
            _FollowedBody(self, defining, scope, function.body, guards, run.depth + 1).follow()
            return
        name = last_name(node.func)
        if name in IMPORTS and (node.args or node.keywords):
            named = library_argument(node)
            modules = sorted(
                program.resolve_name(name, module.package)
                for name in evaluator.value(named) - UNKNOWN
            )
            chosen = len(modules) > 1 and not run.parameter and run.conditions.depends_on_run(named)
            place = f"{module.path}:{node.lineno}"
            for number, target in enumerate(modules):
                if target == module.package:
                    target = program.find_namesake(target) or target
                way = (make_branch(place, number, len(modules)),) if chosen else ()
                self._import(target, (*guards, *way), place)
            return
        call = loading_call_name(node)
        if call is not None:
            names = load_names(call, evaluator.value(library_argument(node)))
            if names or not needs_library_name(call):
                self._load(run, node, names, guards)

    def _load(
        self, run: _FollowedBody, node: ast.Call, names: tuple[str, ...], guards: tuple[Guard, ...]
    ) -> None:
        module, error = run.module, RAISES[last_name(node.func) or ""]
        place = (module.path, node.lineno, last_name(node.func) == "find_library")
        reach, earlier_names = self.loads.get(place, ("guarded", frozenset[str]()))
        harmless = survives(error, guards)
        self.loads[place] = (reach if harmless else "import", earlier_names | set(names))
        if last_name(node.func) in OPERATORS or last_name(node.func) == "find_library":
            return
        # A path inside the distribution without a file is no alternative.
        ways = [
            (name, files)
            for name in names
            if (files := list(self._graph.files([name]))) or not name.startswith("/")
        ]
        chosen = len(ways) > 1 and run.conditions.depends_on_run(library_argument(node))
        position = f"{module.path}:{node.lineno}"
        for number, (_, files) in enumerate(ways):
            way = (make_branch(position, number, len(ways)),) if chosen else ()
            for path in files:
                self._reach(path, error, (*guards, *way), position)


@dataclass(frozen=True)
class _FollowedBody:
    """One body of statements that is being followed."""

    walk: Walk
    module: Module
    scope: Scope
    #: The whole body of the module or function.
    scope_body: Sequence[ast.stmt]
    guards: tuple[Guard, ...]
    depth: int
    #: Parameter that takes every relevant value in turn, such as `name` of `__getattr__`.
    parameter: str = ""

    @property
    def conditions(self) -> Conditions:
        """Conditions of this body."""
        return self.walk.conditions(self)

    def follow(self) -> None:
        """Follow the whole body."""
        self.block(self.scope_body)

    def block(self, body: Sequence[ast.stmt], *guards: Guard) -> bool:
        """Follow statements behind `guards`; return False if they certainly end the function."""
        for number, statement in enumerate(body):
            if not self.walk.step():
                return False
            if not self._statement(statement, body[number + 1 :], guards):
                return False
            if not self._tests_parameter(statement) and self.conditions.leaves_early(statement):
                guards = (*guards, CONDITION)
        return True

    def _tests_parameter(self, node: ast.stmt) -> bool:
        """Return True if a condition depends on `parameter`."""
        if not self.parameter or not isinstance(node, ast.If):
            return False
        names = (part.id for part in ast.walk(node.test) if isinstance(part, ast.Name))
        return self.parameter in names

    def _statement(
        self, node: ast.stmt, after: Sequence[ast.stmt], guards: tuple[Guard, ...]
    ) -> bool:
        match node:
            case ast.Import() | ast.ImportFrom():
                self.walk.imports(self.module, node, (*self.guards, *guards))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for child in evaluated_at_definition(node):
                    self._calls(child, guards)
            case ast.ClassDef():
                for child in evaluated_at_definition(node):
                    self._calls(child, guards)
                self.block(node.body, *guards)
            case ast.If():
                return self._if(node, guards)
            case ast.Try():
                self._try(node, after, guards)
            case ast.With() | ast.AsyncWith():
                inner = guards
                for item in node.items:
                    self._calls(item.context_expr, guards)
                    if (guard := make_context_guard(item.context_expr)) is not None:
                        inner = (*inner, guard)
                return self.block(node.body, *inner)
            case ast.For() | ast.AsyncFor() | ast.While():
                self._calls(node.test if isinstance(node, ast.While) else node.iter, guards)
                self.block(node.body, *guards)
                self.block(node.orelse, *guards)
            case ast.Match():
                self._calls(node.subject, guards)
                for case in node.cases:
                    if case.guard is not None:
                        self._calls(case.guard, (*guards, CONDITION))
                    self.block(case.body, *guards, CONDITION)
            case ast.Return() | ast.Raise():
                self._calls(node, guards)
                return False
            case _:
                self._calls(node, guards)
        return True

    def _if(self, node: ast.If, guards: tuple[Guard, ...]) -> bool:
        self._calls(node.test, guards)
        if self._tests_parameter(node):
            self.block(node.body, *guards)
            self.block(node.orelse, *guards)
            return True
        decided = evaluate_condition(node.test)
        if decided is not None:
            return self.block(node.body if decided else node.orelse, *guards)
        usual = self.conditions.usual_outcome(node.test)
        place = f"{self.module.path}:{node.lineno}"
        ways = [
            CONDITION if usual is not None else make_branch(place, number, 2) for number in (0, 1)
        ]
        first = self.block(node.body, *guards, *(() if usual is True else ways[:1]))
        second = self.block(node.orelse, *guards, *(() if usual is False else ways[1:]))
        if usual is not None:
            return first if usual else second
        return first or second

    def _try(self, node: ast.Try, after: Sequence[ast.stmt], guards: tuple[Guard, ...]) -> None:
        guard = make_guard(node, self.scope_body, after, self.module.scope.assigned)
        if is_needed_afterwards(node, after):
            guard = ()
        ending = [number for number, item in enumerate(guard) if item.raises is None]
        ways = [
            Branch(f"{self.module.path}:{node.lineno}", number, len(ending) + 1)
            for number in range(len(ending) + 1)
        ]
        self.block(node.body, *guards, tuple(replace(item, branch=ways[0]) for item in guard))
        for number, handler in enumerate(node.handlers):
            way = ways[ending.index(number) + 1] if number in ending else None
            self.block(handler.body, *guards, (replace(CONDITION[0], branch=way),))
        self.block(node.orelse, *guards, CONDITION if guard and not cannot_fail(node.body) else ())
        self.block(node.finalbody, *guards)

    def _calls(self, node: ast.AST, guards: tuple[Guard, ...]) -> None:
        ahead: list[tuple[ast.AST, tuple[Guard, ...]]] = [(node, guards)]
        while ahead:
            child, around = ahead.pop()
            # Faster than a `match`: every expression passes here.
            if isinstance(child, ast.Call):
                self.walk.call(self, child, (*self.guards, *around))
            elif isinstance(child, ast.Lambda):
                ahead.extend((inner, around) for inner in evaluated_at_definition(child))
                continue
            elif isinstance(child, ast.IfExp):
                usual = self.conditions.usual_outcome(child.test)
                ahead.append((child.test, around))
                for inner, chosen in ((child.body, True), (child.orelse, False)):
                    ahead.append((inner, around if usual is chosen else (*around, CONDITION)))
                continue
            elif isinstance(child, ast.BoolOp):
                first, *others = child.values
                ahead.append((first, around))
                ahead.extend((other, (*around, CONDITION)) for other in others)
                continue
            ahead.extend((inner, around) for inner in children(child))


def _caught(guards: tuple[Guard, ...]) -> tuple[bool, bool]:
    """Return the exceptions caught: following a module again with more caught adds nothing."""
    return survives("ImportError", guards), survives("OSError", guards)
