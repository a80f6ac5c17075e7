"""Calls that a module makes at import time on every system."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from buildmatrix.python_imports.module import Module
from buildmatrix.python_imports.program import Program
from buildmatrix.python_imports.syntax import children, evaluated_at_definition
from buildmatrix.python_imports.system import evaluate_condition

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
            name = ast.unparse(call.func) if _is_dotted(call.func) else ""
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


def _is_dotted(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


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
            if any(_called_name(child) == "suppress" for child in ahead):
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


def _called_name(node: ast.AST) -> str | None:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name
    return None
