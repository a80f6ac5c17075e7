"""Normalization of the many spellings of a loading call.

`from ctypes import CDLL as L`, `load = ctypes.CDLL`, `cdll["x"]`, `cdll.x`, `partial(CDLL, ...)`,
`map(CDLL, names)` and subclasses of `CDLL` become plain calls. A name has the values assigned in
its own scope, in any order of statements; a name that the scope also binds to something else counts
as the load.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from buildmatrix.facts.python_imports.module import IMPORTS, RAISES, WINDOWS
from buildmatrix.facts.python_imports.parser import (
    Function,
    children,
    evaluate_condition,
    has_line,
    last_name,
)
from buildmatrix.facts.python_imports.source import NORMALIZED_WORDS, find_loading_lines

#: Objects of ctypes that load the library named by an attribute or an item.
_LIBRARIES = frozenset({"cdll", "pydll"})
#: Depth of nested expressions.
_DEEPEST = 20

_OWN_NAMES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class _Load:
    """A loading function, or an object of `_LIBRARIES`."""

    #: A key of `RAISES`, or one of `IMPORTS` or `_LIBRARIES`.
    name: str
    #: Arguments bound already (`functools.partial`).
    args: tuple[ast.expr, ...] = ()
    keywords: tuple[ast.keyword, ...] = ()


#: Name to its load; None for something else.
_Names = dict[str, _Load | None]


def normalize_loads(
    body: list[ast.stmt], source: bytes, imported: Mapping[str, str], is_own: Callable[[str], bool]
) -> tuple[int, ...]:
    """Normalize the loading calls of a module, in place.

    Returns the numbers of the lines with a loading call, or a word of one.

    Args:
        body: the statements of the module.
        source: the text that they were parsed from.
        imported: local name to the dotted name it was imported from.
        is_own: test if a dotted name belongs to the distribution itself.
    """
    foreign = {name: origin for name, origin in imported.items() if not is_own(origin)}
    own_names = imported.keys() - foreign.keys()
    speller = _LoadNormalizer(foreign, find_loading_lines(source, NORMALIZED_WORDS))
    speller.scopes.append(dict.fromkeys(own_names))
    for name, origin in foreign.items():
        last = origin.rpartition(".")[2]
        of_ctypes = origin.startswith("ctypes.") and last in _LIBRARIES
        if name != last and (last in RAISES or last in IMPORTS or of_ctypes):
            speller.scopes[0][name] = _Load(last)
    speller.gather(body)
    speller.generic_visit(ast.Module(body, []))
    # Names for loads become functions, since other modules import them.
    for number, statement in enumerate(body):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) if name not in imported:
                load = speller.scopes[0].get(name)
                if load is not None and load.name in RAISES:
                    body[number] = _make_function(name, load, statement)
    return tuple(sorted(speller.respelled_lines.union(speller.lines)))


def _make_function(name: str, load: _Load, at: ast.stmt) -> ast.stmt:
    parameters = ast.arguments(
        posonlyargs=[], args=[ast.arg("name")], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    call = ast.Call(_loading_function(load.name), [*load.args, ast.Name("name", ast.Load())], [])
    made = ast.FunctionDef(name, parameters, [ast.Return(call)], [])
    return ast.fix_missing_locations(ast.copy_location(made, at))


def _loading_function(name: str) -> ast.expr:
    """Return the loading function under a name that no distribution defines."""
    return ast.Attribute(ast.Name("ctypes", ast.Load()), name, ast.Load())


class _LoadNormalizer(ast.NodeTransformer):
    """Replaces the loading calls of one module."""

    def __init__(self, imported: Mapping[str, str], lines: tuple[int, ...]) -> None:
        self._imported = imported
        self.lines = lines
        #: Numbers of further lines.
        self.respelled_lines: set[int] = set()
        #: Names of the module, then those of the functions around.
        self.scopes: list[_Names] = []
        #: Loading base classes of the classes around.
        self._bases: list[_Load | None] = []

    # Names

    def gather(self, body: Sequence[ast.stmt]) -> None:
        """Find the names of the module that stand for loads."""
        self.scopes[0].update(self._assigned(body, self.scopes[0]))
        if self._has_names():
            # Again, for aliases of such names, which no word in those statements shows.
            self.scopes[0].update(self._assigned(body, self.scopes[0]))

    def _has_names(self) -> bool:
        return any(load is not None for scope in self.scopes for load in scope.values())

    def _assigned(self, body: Iterable[ast.stmt], inherited: _Names) -> _Names:
        """Return the assignments in one scope: loads, and None for everything else."""
        loads: _Names = {}
        everything = len(self.scopes) > 1 or self._has_names()
        ahead: list[ast.AST] = list(body)
        while ahead:
            node = ahead.pop()
            if isinstance(node, ast.stmt) and not everything and not has_line(node, self.lines):
                continue
            for target, value in self._bound(node):
                load = self._load(value) if value is not None else None
                if load is not None or loads.get(target) is None:
                    loads[target] = load or inherited.get(target)
            if not isinstance(node, _OWN_NAMES):
                ahead.extend(children(node))
        return loads

    def _bound(self, node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _bound_pairs(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield from _bound_pairs(target, value)
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                yield name, value
            case ast.For(
                target=ast.Name(id=name), iter=ast.Tuple(elts=parts) | ast.List(elts=parts)
            ):
                for part in parts:
                    yield name, part
            case ast.ClassDef(name=name, bases=bases):
                has_own_init = any(
                    isinstance(child, ast.FunctionDef) and child.name == "__init__"
                    for child in node.body
                )
                for base in () if has_own_init else bases:
                    yield name, base
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, None

    def _find(self, name: str) -> tuple[bool, _Load | None]:
        """Return True if a scope binds `name`, and its load."""
        for scope in reversed(self.scopes):
            if name in scope:
                return True, scope[name]
        return False, None

    def _load(self, node: ast.expr, depth: int = 0) -> _Load | None:
        """Return the load that an uncalled expression stands for."""
        if depth > _DEEPEST:
            return None
        match node:
            case ast.Name(id=name):
                is_bound, load = self._find(name)
                if is_bound:
                    return load
                if name in _LIBRARIES:
                    origins = self._imported.get(name), self._imported.get("*")
                    return _Load(name) if {f"ctypes.{name}", "ctypes.*"} & {*origins} else None
                return _Load(name) if name in RAISES or name in IMPORTS else None
            case ast.Attribute(value=inner, attr=attribute):
                is_bound, load = self._find(
                    f"{inner.id}.{attribute}" if isinstance(inner, ast.Name) else ""
                )
                return load if is_bound else self._attribute(inner, attribute)
            case ast.NamedExpr(value=inner):
                return self._load(inner, depth + 1)
            case ast.IfExp(test=test, body=first, orelse=second):
                outcome = evaluate_condition(test)
                parts = [first, second] if outcome is None else [first if outcome else second]
                return self._first(parts, depth)
            case ast.BoolOp(values=parts) | ast.Subscript(value=ast.Dict(values=parts)):
                return self._first(parts, depth)
            case ast.Call(func=called, args=[inner, *rest], keywords=keywords):
                match last_name(called), rest:
                    case "partial", _:
                        load = self._load(inner, depth + 1)
                        if load is None or load.name in _LIBRARIES:
                            return None
                        return replace(
                            load, args=(*load.args, *rest), keywords=(*load.keywords, *keywords)
                        )
                    case "getattr", [ast.Constant(value=str() as attribute), *_]:
                        return self._attribute(inner, attribute)
                    case "LibraryLoader", _ if self._load(inner, depth + 1) is not None:
                        return _Load("cdll")
        return None

    def _first(self, nodes: Sequence[ast.expr], depth: int) -> _Load | None:
        loads = (self._load(node, depth + 1) for node in nodes)
        return next((load for load in loads if load is not None), None)

    def _attribute(self, inner: ast.expr, attribute: str) -> _Load | None:
        if attribute in RAISES or attribute in IMPORTS:
            return None if last_name(inner) in WINDOWS else _Load(attribute)
        if attribute in _LIBRARIES and isinstance(inner, ast.Name):
            # Many classes have a `self.cdll`, which is a library already loaded.
            return _Load(attribute) if self._imported.get(inner.id) == "ctypes" else None
        return None

    # Replacing

    def visit(self, node: ast.AST) -> ast.AST:
        """Visit a node; statements without a loading word stay unchanged."""
        # A name or a base class may load without such a word.
        if isinstance(node, ast.stmt) and not (
            has_line(node, self.lines)
            or self._has_names()
            or (self._bases and self._bases[-1] is not None)
        ):
            return node
        made: ast.AST = super().visit(node)
        return made

    def visit_FunctionDef(self, node: Function) -> ast.AST:
        """Visit a function, with the names of its own scope."""
        parameters = node.args
        positional = [*parameters.posonlyargs, *parameters.args]
        names: _Names = dict.fromkeys(item.arg for item in (*positional, *parameters.kwonlyargs))
        for child, default in zip(
            reversed(positional), reversed(parameters.defaults), strict=False
        ):
            names[child.arg] = self._load(default)
        # Decorators, defaults and annotations belong to the scope around the function.
        body, node.body = node.body, []
        self.generic_visit(node)
        self.scopes.append(names)
        names.update(self._assigned(body, dict(names)))
        node.body = [cast(ast.stmt, self.visit(child)) for child in body]
        self.scopes.pop()
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Visit a class, whose `super().__init__` may load."""
        self._bases.append(self._first(node.bases, 0))
        self.generic_visit(node)
        self._bases.pop()
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace a call of a load."""
        self.generic_visit(node)
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__init__")
            ) if self._bases and self._bases[-1] is not None:
                return self._call(self._bases[-1], node, node.args)
            case ast.Call(func=ast.Name(id="map"), args=[called, *rest]):
                load = self._load(called)
                if load is not None and load.name in RAISES:
                    return self._call(load, node, rest)
            case ast.Call(func=ast.Name(id="getattr"), args=[inner, named, *_]) if self._is_library(
                inner
            ):
                return self._call(_Load("LoadLibrary"), node, [named])
        load = self._load(node.func)
        if load is None or load.name in _LIBRARIES:
            return node
        if (
            load.name == last_name(node.func)
            and not load.args
            and not isinstance(node.func, ast.Call)
        ):
            return node
        return self._call(load, node, node.args)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Replace `cdll["x"]`."""
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load) and self._is_library(node.value):
            return self._call(_Load("LoadLibrary"), node, [node.slice])
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Replace `cdll.x`."""
        self.generic_visit(node)
        if node.attr in RAISES or node.attr.startswith("_") or not isinstance(node.ctx, ast.Load):
            return node
        if not self._is_library(node.value):
            return node
        return self._call(_Load("LoadLibrary"), node, [ast.Constant(node.attr)])

    def _is_library(self, node: ast.expr) -> bool:
        """True if an expression stands for an object of `_LIBRARIES`."""
        load = self._load(node)
        return load is not None and load.name in _LIBRARIES

    def _call(self, load: _Load, node: ast.expr, args: Sequence[ast.expr]) -> ast.AST:
        self.respelled_lines.add(node.lineno)
        keywords = [*load.keywords, *(node.keywords if isinstance(node, ast.Call) else ())]
        func = _loading_function(load.name)
        if load.name in IMPORTS:
            func = ast.Name(load.name, ast.Load())
        call = ast.Call(func, [*load.args, *args], keywords)
        return ast.fix_missing_locations(ast.copy_location(call, node))


def _bound_pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the names that an assignment binds, each with its value."""
    match target:
        case ast.Name(id=name):
            yield name, value
        case ast.Attribute(value=ast.Name(id=owner), attr=attribute):
            yield f"{owner}.{attribute}", value
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            values: Sequence[ast.expr | None] = [None] * len(targets)
            if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(targets):
                values = value.elts
            for inner, inner_value in zip(targets, values, strict=True):
                if inner_value is not None:
                    yield from _bound_pairs(inner, inner_value)
