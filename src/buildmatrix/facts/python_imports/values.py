"""Possible string values of expressions in a Python file, from its text.

A value is a set of patterns: strings with `*` for parts known only at run time. A list, tuple, set
or dictionary has the values of all its elements. `{"*"}` means that nothing is known. The order of
statements is ignored: a name has every value that is ever assigned to it.

`__file__` is the path of the module in the tree with a leading slash, so that a library next to the
module gets its path in the tree.
"""

from __future__ import annotations

import ast
import itertools
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from buildmatrix.facts.python_imports.parser import children, evaluate_condition

Value = frozenset[str]

UNKNOWN: Value = frozenset({"*"})
NOTHING: Value = frozenset()

#: Patterns in one value; with more, the value counts as computed.
MOST_PATTERNS = 64
LONGEST_PATTERN = 1024
#: Total depth of nested expressions, names that stand for names, and calls.
DEEPEST = 40
#: Total steps of one evaluation, and of the calls that it follows.
MOST_STEPS = 500

#: Calls that return their argument, as far as names are concerned.
_SAME_VALUE = frozenset(
    {"str", "bytes", "list", "tuple", "set", "frozenset", "sorted", "reversed", "iter", "next"}
    | {"enumerate", "fspath", "fsencode", "fsdecode", "abspath", "realpath", "normpath", "copy"}
    | {"expanduser", "expandvars", "c_char_p", "Path", "PurePath", "PosixPath", "glob", "iglob"}
)
#: Methods that return their object.
_SAME_METHOD = frozenset(
    {"resolve", "absolute", "expanduser", "as_posix", "encode", "decode", "strip", "lstrip"}
    | {"rstrip", "copy", "iterdir", "items", "values", "keys"}
)
_SAME_ATTRIBUTE = frozenset({"origin", "path", "location"})
#: A template string (PEP 750) and its field, which Python parses since 3.14.
_Template = getattr(ast, "TemplateStr", ast.JoinedStr)
_Interpolation = getattr(ast, "Interpolation", ast.FormattedValue)
_PERCENT = re.compile(r"%(?:\([^)]*\))?[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]|%%")
_BRACES = re.compile(r"\{\{|\}\}|\{[^{}]*\}")


@dataclass(slots=True)
class Scope:
    """The names of a module or a function, with everything assigned to each."""

    #: Name to expressions; for a loop variable, the iterated expression.
    assigned: dict[str, list[ast.expr]] = field(default_factory=dict)
    #: Parameters of a call that is being followed.
    bound: Mapping[str, Value] = field(default_factory=dict)
    parent: Scope | None = None
    #: Names assigned by a loop.
    looped: set[str] = field(default_factory=set)

    def find(self, name: str) -> Scope | None:
        """Return the innermost scope that binds or assigns `name`."""
        scope: Scope | None = self
        while scope is not None and name not in scope.bound and name not in scope.assigned:
            scope = scope.parent
        return scope


#: Evaluates a call of a name defined elsewhere; None if unknown.
Follow = Callable[[ast.Call, "Evaluator"], Value | None]


_OWN_SCOPE = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda})
_ASSIGNING = frozenset(
    {ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.Call}
    | {ast.comprehension, ast.withitem}
)


def make_scope(body: Iterable[ast.stmt], parent: Scope | None = None) -> Scope:
    """Return the scope of a module's or function's body; inner functions have their own."""
    scope = Scope(parent=parent)
    ahead: list[ast.AST] = list(body)
    loops: list[tuple[ast.expr, ast.expr]] = []
    while ahead:
        node = ahead.pop()
        kind = type(node)
        if kind in _OWN_SCOPE:
            continue
        if kind in _ASSIGNING:
            _assignments(scope, node, loops)
        ahead.extend(children(node))
    for target, iterated in loops:
        _assign_loop(scope, target, iterated)
    return scope


def _assignments(scope: Scope, node: ast.AST, loops: list[tuple[ast.expr, ast.expr]]) -> None:
    """Record the assignments of one node; loops are deferred until all else is known."""
    match node:
        case ast.Assign():
            for target in node.targets:
                _assign(scope, target, node.value)
        case ast.AnnAssign(value=ast.expr() as value) | ast.AugAssign(value=value):
            _assign(scope, node.target, value)
        case ast.NamedExpr():
            _assign(scope, node.target, node.value)
        case ast.For() | ast.AsyncFor() | ast.comprehension():
            loops.append((node.target, node.iter))
        case ast.withitem(optional_vars=ast.expr() as target):
            _assign(scope, target, node.context_expr)
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend" | "insert")
        ) if node.args:
            scope.assigned.setdefault(name, []).append(node.args[-1])


def _assign_loop(scope: Scope, target: ast.expr, iterated: ast.expr) -> None:
    """Record a loop: over literal tuples, each variable has the values of its own column."""
    scope.looped.update(node.id for node in ast.walk(target) if isinstance(node, ast.Name))
    lists = [iterated]
    if isinstance(iterated, ast.Name):
        lists = scope.assigned.get(iterated.id, lists)
    rows = [
        row for child in lists if isinstance(child, (ast.List, ast.Tuple)) for row in child.elts
    ]
    if isinstance(target, ast.Tuple) and rows and all(isinstance(r, ast.Tuple) for r in rows):
        for row in rows:
            _assign(scope, target, row)
    else:
        _assign(scope, target, iterated)


def _assign(scope: Scope, target: ast.expr, value: ast.expr) -> None:
    match target:
        case ast.Name(id=name):
            scope.assigned.setdefault(name, []).append(value)
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            match value:
                case ast.Tuple(elts=values) | ast.List(elts=values) if len(values) == len(targets):
                    for node, element in zip(targets, values, strict=True):
                        _assign(scope, node, element)
                case _:
                    for node in targets:
                        _assign(scope, node, value)
        case ast.Starred(value=inner):
            _assign(scope, inner, value)


class Evaluator:
    """Evaluates expressions of the module at `path` in a scope; `outer` is the caller's."""

    def __init__(
        self, path: str, scope: Scope, follow: Follow | None = None, outer: Evaluator | None = None
    ) -> None:
        self.path = path
        self._scope = scope
        self._follow = follow
        self._depth = 0
        self._steps: list[int] = [0] if outer is None else outer._steps
        self._evaluated: set[tuple[int, str]] = set()

    def value(self, node: ast.expr) -> Value:
        """Return all strings that `node` can stand for."""
        self._steps[0] += 1
        if self._depth >= DEEPEST or self._steps[0] > MOST_STEPS:
            return UNKNOWN
        self._depth += 1
        try:
            return _limit(self._value(node))
        finally:
            self._depth -= 1

    def inside(self, scope: Scope, node: ast.expr) -> Value:
        """Evaluate `node` in another scope of the same module."""
        outer, self._scope = self._scope, scope
        try:
            return self.value(node)
        finally:
            self._scope = outer

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=str() | bytes() | int() as constant):
                return _constant(constant)
            case ast.Name(id="__file__"):
                return frozenset({f"/{self.path}"})
            case ast.Name(id=name):
                return self._name(name)
            case ast.JoinedStr(values=parts) | _Template(values=parts):
                return _concatenate([self.value(part) for part in parts])
            case ast.FormattedValue(value=inner) | _Interpolation(value=inner):
                return self.value(inner)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                if isinstance(left, (ast.List, ast.Tuple)) or isinstance(
                    right, (ast.List, ast.Tuple)
                ):
                    return self.value(left) | self.value(right)
                return _concatenate([self.value(left), self.value(right)])
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return _join_paths([self.value(left), self.value(right)])
            case ast.BinOp(left=left, op=ast.Mod(), right=right):
                return self._percent(left, right)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                outcome = evaluate_condition(test)
                if outcome is not None:
                    return self.value(body if outcome else orelse)
                return self.value(body) | self.value(orelse)
            case (
                ast.List(elts=parts)
                | ast.Tuple(elts=parts)
                | ast.Set(elts=parts)
                | ast.BoolOp(values=parts)
            ):
                return self._union(parts)
            case ast.Dict(keys=keys, values=values):
                return self._union([*(key for key in keys if key is not None), *values])
            case ast.Starred(value=inner) | ast.NamedExpr(value=inner) | ast.Await(value=inner):
                return self.value(inner)
            case ast.ListComp(elt=inner) | ast.SetComp(elt=inner) | ast.GeneratorExp(elt=inner):
                scope = Scope(parent=self._scope)
                for generator in node.generators:
                    _assign(scope, generator.target, generator.iter)
                return self.inside(scope, inner)
            case ast.Subscript(value=ast.Attribute(value=inner, attr="parents"), slice=index):
                number = index.value if isinstance(index, ast.Constant) else None
                folders = self.value(inner)
                for _ in range(number + 1 if isinstance(number, int) and 0 <= number < 9 else 0):
                    folders = _map(posixpath.dirname, folders)
                return folders if isinstance(number, int) else UNKNOWN
            case ast.Subscript(value=inner):
                return self.value(inner)
            case ast.Attribute(value=inner, attr="parent"):
                return _map(posixpath.dirname, self.value(inner))
            case ast.Attribute(value=inner, attr="name"):
                return _map(posixpath.basename, self.value(inner))
            case ast.Attribute(value=inner, attr=attribute) if attribute in _SAME_ATTRIBUTE:
                return self.value(inner)
            case ast.Call():
                return self._call(node)
        return UNKNOWN

    def _union(self, nodes: Sequence[ast.expr]) -> Value:
        patterns: set[str] = set()
        for node in nodes[:MOST_STEPS]:
            patterns |= self.value(node)
            if len(patterns) > MOST_PATTERNS:
                return UNKNOWN
        return frozenset(patterns)

    def _name(self, name: str) -> Value:
        scope = self._scope.find(name)
        if scope is None:
            return UNKNOWN
        if name in scope.bound:
            return scope.bound[name]
        # `path = path / "lib"`: the name being evaluated adds nothing to itself.
        if (id(scope), name) in self._evaluated:
            return NOTHING
        self._evaluated.add((id(scope), name))
        try:
            assigned = scope.assigned[name][:MOST_PATTERNS]
            return frozenset().union(*(self.inside(scope, node) for node in assigned))
        finally:
            self._evaluated.discard((id(scope), name))

    def _percent(self, left: ast.expr, right: ast.expr) -> Value:
        parts = [self.value(node) for node in right.elts] if isinstance(right, ast.Tuple) else None
        single = self.value(right) if parts is None else UNKNOWN
        results: Value = NOTHING
        for pattern in self.value(left):
            inserted: list[Value] = []
            for number, spec in enumerate(_PERCENT.findall(pattern)):
                if spec == "%%":
                    inserted.append(frozenset({"%"}))
                elif parts is None:
                    inserted.append(single or UNKNOWN)
                else:
                    inserted.append((parts[number] if number < len(parts) else NOTHING) or UNKNOWN)
            results |= _insert(_PERCENT, pattern, inserted)
        return results

    def _call(self, node: ast.Call) -> Value:
        if self._follow is not None:
            followed = self._follow(node, self)
            if followed is not None:
                return followed
        arguments = [self.value(argument) for argument in node.args]
        first = arguments[0] if arguments else UNKNOWN
        match node.func:
            case ast.Attribute(value=ast.Constant(), attr="join"):
                return UNKNOWN
            case ast.Attribute(attr="join") | ast.Name(id="join"):
                return _join_paths(arguments) if arguments else UNKNOWN
            case ast.Attribute(attr="dirname") | ast.Name(id="dirname"):
                return _map(posixpath.dirname, first)
            case ast.Attribute(attr="basename") | ast.Name(id="basename"):
                return _map(posixpath.basename, first)
            case ast.Attribute(value=owner, attr="joinpath"):
                return _join_paths([self.value(owner), *arguments])
            case ast.Attribute(value=owner, attr="glob" | "rglob") if not _is_name(owner, "glob"):
                return _join_paths([self.value(owner), first])
            case ast.Attribute(value=owner, attr="with_name"):
                return _join_paths([_map(posixpath.dirname, self.value(owner)), first])
            case ast.Attribute(value=owner, attr="format"):
                return self._format(owner, node, arguments)
            case ast.Attribute(value=owner, attr=method) if method in _SAME_METHOD:
                return self.value(owner)
            case ast.Attribute(attr="get" | "getenv") | ast.Name(id="getenv"):
                return UNKNOWN | (arguments[1] if len(arguments) > 1 else NOTHING)
            case ast.Attribute(attr="find_library") | ast.Name(id="find_library"):
                names = [self.value(word.value) for word in node.keywords if word.arg == "name"]
                return _map(lambda name: f"lib{name}.so*", names[0] if names else first)
            case ast.Attribute(attr="find_spec") | ast.Name(id="find_spec"):
                return _map(lambda name: f"*/{name.rpartition('.')[2]}.*so", first)
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in _SAME_VALUE:
                return _join_paths(arguments) if len(arguments) > 1 and "Path" in name else first
        return UNKNOWN

    def _format(self, owner: ast.expr, node: ast.Call, arguments: Sequence[Value]) -> Value:
        named = {word.arg: self.value(word.value) for word in node.keywords if word.arg}
        results: Value = NOTHING
        for pattern in self.value(owner):
            inserted: list[Value] = []
            position = 0
            for spec in _BRACES.findall(pattern):
                if spec in ("{{", "}}"):
                    inserted.append(frozenset({spec[0]}))
                    continue
                key = re.split(r"[!:.\[]", spec[1:-1])[0]
                if not key:
                    key, position = str(position), position + 1
                index = int(key) if key.isdecimal() and len(key) < 4 else len(arguments)
                is_given = index < len(arguments)
                inserted.append(arguments[index] if is_given else named.get(key, UNKNOWN))
            results |= _insert(_BRACES, pattern, inserted)
        return results


def _constant(constant: str | bytes | int) -> Value:
    # A number has fewer decimal digits than bits; Python refuses to write 4300 digits.
    if isinstance(constant, int) and constant.bit_length() > LONGEST_PATTERN:
        return UNKNOWN
    text = constant.decode("utf-8", "replace") if isinstance(constant, bytes) else str(constant)
    return frozenset({text}) if len(text) <= LONGEST_PATTERN else UNKNOWN


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _limit(value: Value) -> Value:
    if len(value) > MOST_PATTERNS or any(len(pattern) > LONGEST_PATTERN for pattern in value):
        return UNKNOWN
    return value


def _map(function: Callable[[str], str], value: Value) -> Value:
    return frozenset("*" if pattern == "*" else function(pattern) or "*" for pattern in value)


def _concatenate(parts: Sequence[Value]) -> Value:
    """Concatenate one pattern of each part, in all combinations."""
    return _limit(_combine(parts, lambda pieces: re.sub(r"\*+", "*", "".join(pieces))))


def _join_paths(parts: Sequence[Value]) -> Value:
    """Join one pattern of each part to a path, in all combinations."""
    return _combine(parts, lambda pieces: posixpath.normpath(posixpath.join(*pieces)))


def _combine(parts: Sequence[Value], join: Callable[[tuple[str, ...]], str]) -> Value:
    count = 1
    for part in parts:
        count *= len(part)
        if count > MOST_PATTERNS:
            return UNKNOWN
    return frozenset(map(join, itertools.product(*parts)))


def _insert(places: re.Pattern[str], pattern: str, inserted: Iterable[Value]) -> Value:
    """Return `pattern` with a value of its own in each of its places."""
    texts = (frozenset({text}) for text in places.split(pattern))
    pieces = itertools.chain.from_iterable(itertools.zip_longest(texts, inserted))
    return _concatenate([piece for piece in pieces if piece is not None])
