"""Outcome of conditions when a module is imported on an unprepared machine.

Environment variables that they read are not set, and the files of the distribution exist.
Conditions on the machine or on other distributions stay open.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import eq, ge, gt, is_, is_not, le, lt, ne
from typing import Any

from buildmatrix.facts.python_imports.module import Module
from buildmatrix.facts.python_imports.parser import evaluate_condition, last_name, walk
from buildmatrix.facts.python_imports.program import Program
from buildmatrix.facts.python_imports.values import Scope

_OPERATORS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: eq,
    ast.NotEq: ne,
    ast.Is: is_,
    ast.IsNot: is_not,
    ast.Lt: lt,
    ast.LtE: le,
    ast.Gt: gt,
    ast.GtE: ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}
#: Python versions that a distribution may run on.
_PYTHONS = tuple((3, minor, 0) for minor in range(8, 20))
_VERSIONS: Mapping[str, tuple[object, ...]] = {
    "sys.version_info": _PYTHONS,
    "sys.version_info.major": (3,),
    "sys.version_info[0]": (3,),
    "sys.version_info[:2]": tuple(version[:2] for version in _PYTHONS),
}
_DEEPEST = 12
_EXISTS = frozenset({"exists", "isfile", "is_file", "lexists"})
_SAME_TEXT = frozenset({"lower", "upper", "strip"})
_SIMPLE_TYPES: Mapping[str | None, Callable[[Any], object]] = {"int": int, "bool": bool, "str": str}
#: Texts that depend on the machine, its environment, or other distributions.
_OF_THE_MACHINE = re.compile(
    r"is_available|device_count|torch\.version|environ|getenv|find_spec|machine\(\)"
)


class _UnknownValue(Exception):
    """The value is unknown before a run."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of one body of statements of `module`."""

    program: Program
    module: Module
    scope: Scope
    #: Test if an expression names a file of the distribution.
    is_there: Callable[[ast.expr], bool]

    def usual_outcome(self, test: ast.expr) -> bool | None:
        """Return the outcome of `test` on an unprepared machine; None if open."""
        return evaluate_condition(test, self._decide)

    def leaves_early(self, statement: ast.stmt) -> bool:
        """True if the code after `statement` runs only on some machines."""
        if not isinstance(statement, ast.If) or statement.orelse:
            return False
        if not isinstance(statement.body[-1], (ast.Return, ast.Continue)):
            return False
        return bool(_OF_THE_MACHINE.search(self._text(statement.test)))

    def depends_on_run(self, node: ast.expr, depth: int = 0) -> bool:
        """True if a run decides which of several values `node` has."""
        for child in walk(node):
            match child:
                case ast.IfExp(test=test) if self.usual_outcome(test) is None:
                    return True
                case ast.BoolOp() | ast.Subscript(slice=ast.Name() | ast.Attribute()):
                    return True
                case ast.Name(id=name) if depth < _DEEPEST:
                    assigned, looped = self._assigned(name)
                    if looped:
                        continue
                    if len(assigned) > 1 or any(
                        self.depends_on_run(value, depth + 1) for value in assigned
                    ):
                        return True
        return False

    def _text(self, test: ast.expr) -> str:
        """Return the text of the expression, with the values of its names."""
        texts = [ast.unparse(test)]
        for node in walk(test):
            if isinstance(node, ast.Name):
                texts += [ast.unparse(child) for child in self._assigned(node.id)[0][:2]]
        return " ".join(texts)

    def _assigned(self, name: str) -> tuple[list[ast.expr], bool]:
        """Return the values assigned to a name, and True if a loop assigns them."""
        scope = self.scope.find(name)
        if scope is None or name in scope.bound:
            return [], False
        return scope.assigned[name], name in scope.looped

    def _decide(self, test: ast.expr) -> bool | None:
        try:
            return bool(self._value(test, 0))
        except (_UnknownValue, TypeError, ValueError, OverflowError):
            return None

    def _value(self, node: ast.expr, depth: int) -> object:
        """Evaluate an expression. Raises _UnknownValue."""
        if depth > _DEEPEST:
            raise _UnknownValue
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return tuple(self._value(item, depth + 1) for item in parts)
            case ast.NamedExpr(value=inner):
                return self._value(inner, depth + 1)
            case ast.Name(id="__package__"):
                return self.module.package
            case ast.Name(id="__name__"):
                return self.module.name
            case ast.Name(id=name):
                return self._name(name, depth + 1)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                if name in self.module.imported:
                    return self._read_constant(f"{self.module.imported[name]}.{attribute}")
            case ast.BoolOp(op=ast.Or(), values=values):
                result: object = None
                for child in values:
                    result = self._value(child, depth + 1)
                    if result:
                        break
                return result
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                return self._compare(left, operator, right, depth)
            case ast.Call():
                return self._call(node, depth)
        raise _UnknownValue

    def _name(self, name: str, depth: int) -> object:
        scope = self.scope.find(name)
        if scope is None and name in self.module.imported:
            return self._read_constant(self.module.imported[name])
        if scope is None or name in scope.bound or len(scope.assigned[name]) > 1:
            raise _UnknownValue
        return self._value(scope.assigned[name][0], depth + 1)

    def _read_constant(self, dotted: str) -> object:
        """Return a constant of another module of the distribution, without parsing the module."""
        owner = self.program.find_owner(dotted)
        path = self.program.modules.get(owner[0]) if owner is not None else None
        if owner is None or path is None or not owner[1].isidentifier():
            raise _UnknownValue
        source = self.program.source(path) or b""
        name = re.escape(owner[1]).encode()
        lines = re.findall(rb"^([ \t]*)%b[ \t]*(?::[^=\n]*)?=(?!=)([^\n]*)" % name, source, re.M)
        if len(lines) != 1 or lines[0][0]:
            raise _UnknownValue
        try:
            return ast.literal_eval(lines[0][1].strip().decode("utf-8", "replace"))
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            raise _UnknownValue from None

    def _compare(self, left: ast.expr, operator: ast.cmpop, right: ast.expr, depth: int) -> bool:
        if isinstance(operator, (ast.In, ast.NotIn)) and last_name(right) == "environ":
            return isinstance(operator, ast.NotIn)
        compare = _OPERATORS[type(operator)]
        expected = self._value(right, depth + 1)
        is_part = isinstance(left, (ast.Attribute, ast.Subscript))
        if is_part and (versions := _VERSIONS.get(ast.unparse(left))) is not None:
            outcomes = {compare(version, expected) for version in versions}
            if len(outcomes) > 1:
                raise _UnknownValue
            return outcomes.pop()
        return compare(self._value(left, depth + 1), expected)

    def _call(self, node: ast.Call, depth: int) -> object:
        name = last_name(node.func)
        inner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if name == "getenv" or (name == "get" and inner and last_name(inner) == "environ"):
            # No such variable is set.
            return self._value(node.args[1], depth + 1) if len(node.args) > 1 else None
        if name in _SAME_TEXT and inner is not None and not node.args:
            value = self._value(inner, depth + 1)
            if isinstance(value, str):
                return getattr(value, name)()
        elif name in _SIMPLE_TYPES and inner is None and len(node.args) == 1:
            value = self._value(node.args[0], depth + 1)
            if isinstance(value, (str, int)) and len(str(value)) <= 40:
                return _SIMPLE_TYPES[name](value)
        elif name == "find_spec" and node.args:
            # A module of another distribution may or may not be installed.
            module = self._value(node.args[0], depth + 1)
            if isinstance(module, str):
                dotted = self.program.resolve_name(module, self.module.package)
                if (owner := self.program.find_owner(dotted)) is not None and not owner[1]:
                    return True
        elif name in _EXISTS:
            place = node.args[0] if node.args else inner
            if place is not None and self.is_there(place):
                return True
        raise _UnknownValue


def cannot_fail(body: Iterable[ast.stmt]) -> bool:
    """True if nothing in `body` can fail: only imports of the standard library."""
    for statement in body:
        match statement:
            case ast.Import(names=names):
                modules = [node.name for node in names]
            case ast.ImportFrom(level=0, module=str() as name):
                modules = [name]
            case ast.Pass():
                modules = []
            case _:
                return False
        if any(module.partition(".")[0] not in sys.stdlib_module_names for module in modules):
            return False
    return True
