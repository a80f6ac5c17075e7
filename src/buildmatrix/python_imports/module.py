"""One parsed module of a distribution, and the arguments of calls of its functions."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from buildmatrix.python_imports.skeleton import (
    NOTHING_OMITTED,
    OmittedBodies,
)
from buildmatrix.python_imports.syntax import Function, children
from buildmatrix.python_imports.values import (
    UNKNOWN,
    Evaluator,
    Scope,
    Value,
    make_scope,
)


@dataclass(slots=True)
class Module:
    """A parsed module."""

    name: str
    path: str
    tree: ast.Module
    scope: Scope = field(default_factory=Scope)
    #: Sorted numbers of the lines with a loading call or a word of one.
    loading_lines: tuple[int, ...] = ()
    #: Functions and classes at module level, including those inside of `if` and `try`.
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    #: Local name to the absolute dotted name it was imported from.
    imported: dict[str, str] = field(default_factory=dict)

    #: Functions with bodies that are not parsed yet.
    left_out: OmittedBodies = NOTHING_OMITTED

    #: Results about the bodies of functions, by identity.
    _inside: dict[int, Scope] = field(default_factory=dict)
    _returned: dict[int, tuple[ast.expr, ...]] = field(default_factory=dict)

    def scope_inside(self, function: Function, bound: Mapping[str, Value]) -> Scope:
        """Return the scope of a function of this module, with these values of its parameters."""
        scope = self._inside.get(id(function))
        if scope is None:
            scope = self._inside[id(function)] = make_scope(function.body, self.scope)
        return Scope(scope.assigned, bound, self.scope)

    def returned_values(self, function: Function) -> tuple[ast.expr, ...]:
        """Return the expressions that a function of this module returns or yields."""
        if id(function) not in self._returned:
            self._returned[id(function)] = tuple(_find_returned(function))
        return self._returned[id(function)]

    @property
    def package(self) -> str:
        """Package that a relative import with one dot refers to."""
        is_package = posixpath.basename(self.path) == "__init__.py"
        return self.name if is_package else self.name.rpartition(".")[0]


def bind_arguments(function: Function, call: ast.Call, evaluator: Evaluator) -> Mapping[str, Value]:
    """Return the value of each parameter of `function` in `call`."""
    arguments = function.args
    names = [child.arg for child in (*arguments.posonlyargs, *arguments.args)]
    if names[:1] == ["self"]:
        names = names[1:]
    bound: dict[str, Value] = {}
    for name, default in zip(reversed(names), reversed(arguments.defaults), strict=False):
        bound[name] = evaluator.value(default)
    for node, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        bound[node.arg] = UNKNOWN if keyword_default is None else evaluator.value(keyword_default)
    for name, argument in zip(names, call.args, strict=False):
        bound[name] = evaluator.value(argument)
    for word in call.keywords:
        if word.arg is not None:
            bound[word.arg] = evaluator.value(word.value)
    return {**dict.fromkeys(names, UNKNOWN), **bound}


def _find_returned(function: Function) -> Iterator[ast.expr]:
    ahead: list[ast.AST] = list(function.body)
    while ahead:
        node = ahead.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(node, (ast.Return, ast.Yield)) and node.value is not None:
            yield node.value
        ahead.extend(children(node))
