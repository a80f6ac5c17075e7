"""Walks over syntax trees, several times as fast as those of `ast`.

Nodes without a meaning of their own are skipped: operators, and contexts of names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef

#: Fields that never hold a node, or only a skipped one.
_EMPTY = frozenset(
    {"ctx", "op", "ops", "id", "attr", "arg", "asname", "level", "module", "kind", "type_comment"}
    | {"conversion", "simple", "is_async", "tag"}
)
_LEAVES = (ast.Constant, ast.Global, ast.Nonlocal, ast.alias)


def _fields_of(kind: type[ast.AST]) -> tuple[str, ...]:
    return () if kind in _LEAVES else tuple(field for field in kind._fields if field not in _EMPTY)


_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}


def children(node: ast.AST) -> list[ast.AST]:
    """Return the nodes directly below `node`, in the order of `ast.iter_child_nodes`."""
    kind = type(node)
    fields = _FIELDS.get(kind)
    if fields is None:
        fields = _FIELDS[kind] = _fields_of(kind)
    nodes: list[ast.AST] = []
    for name in fields:
        value = getattr(node, name, None)
        if value.__class__ is list:
            nodes += [child for child in value if isinstance(child, ast.AST)]
        elif isinstance(value, ast.AST):
            nodes.append(value)
    return nodes


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield `node` and all nodes below it, level by level, like `ast.walk`."""
    level = [node]
    while level:
        yield from level
        level = [below for child in level for below in children(child)]


def evaluated_at_definition(node: Function | ast.ClassDef | ast.Lambda) -> list[ast.expr]:
    """Return the expressions evaluated when a function or class is defined, not when called."""
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *(word.value for word in node.keywords)]
    arguments = node.args
    made = [*arguments.defaults, *(item for item in arguments.kw_defaults if item is not None)]
    if isinstance(node, ast.Lambda):
        return made
    everyone = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    variadic = (item for item in (arguments.vararg, arguments.kwarg) if item is not None)
    annotations = (item.annotation for item in (*everyone, *variadic))
    return [
        *node.decorator_list,
        *made,
        *(item for item in (*annotations, node.returns) if item is not None),
    ]


def last_name(node: ast.expr) -> str | None:
    """Return `c` for `c`, for `a.b.c`, and for a call of either."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=inner):
            return last_name(inner)
    return None


def all_statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield all statements, including those in functions and classes; expressions are skipped."""
    ahead: list[ast.AST] = list(body)
    while ahead:
        node = ahead.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            ahead.extend(getattr(node, name, ()))


def definitions(body: Iterable[ast.stmt]) -> Iterator[Function | ast.ClassDef]:
    """Yield functions and classes, also behind conditions, but not nested ones."""
    ahead: list[ast.AST] = list(reversed(list(body)))
    while ahead:
        node = ahead.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node
        elif isinstance(node, (ast.stmt, ast.ExceptHandler)):
            ahead.extend(reversed(children(node)))
