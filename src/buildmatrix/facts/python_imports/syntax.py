"""Walks over syntax trees, and conditions with one outcome on any Linux machine."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

# Walks. Nodes without a meaning of their own are skipped: operators, and contexts of names. Several
# times as fast as those of `ast`.


Function = ast.FunctionDef | ast.AsyncFunctionDef

#: Fields that never hold a node, or only a skipped one.
_EMPTY = frozenset(
    {"ctx", "op", "ops", "id", "attr", "arg", "asname", "level", "module", "kind", "type_comment"}
    | {"conversion", "simple", "is_async", "tag"}
)
_LEAVES = (ast.Constant, ast.Global, ast.Nonlocal, ast.alias)


_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}


def children(node: ast.AST) -> list[ast.AST]:
    """Return the nodes directly below `node`, in the order of `ast.iter_child_nodes`."""
    kind = type(node)
    fields = _FIELDS.get(kind)
    if fields is None:
        names = () if kind in _LEAVES else kind._fields
        fields = _FIELDS[kind] = tuple(name for name in names if name not in _EMPTY)
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


def has_line(node: ast.stmt, lines: Sequence[int]) -> bool:
    """True if a statement, with its decorators, has one of `lines`, which are sorted."""
    first = node.lineno
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        first = min([first, *(child.lineno for child in node.decorator_list)])
    at = bisect_left(lines, first)
    return at < len(lines) and lines[at] <= (node.end_lineno or first)


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


# Conditions


def evaluate_condition(
    test: ast.expr, decide: Callable[[ast.expr], bool | None] | None = None
) -> bool | None:
    """Return the outcome of a condition on Linux at import time; None if unknown.

    `decide` is called for conditions that depend on more than the system.
    """
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            outcome = evaluate_condition(inner, decide)
            return None if outcome is None else not outcome
        case ast.BoolOp(op=operator, values=values):
            outcomes = [evaluate_condition(value, decide) for value in values]
            any_of = isinstance(operator, ast.Or)
            if any_of in outcomes:
                return any_of
            return None if None in outcomes else not any_of
    outcome = _evaluate_system(test)
    return outcome if outcome is not None or decide is None else decide(test)


def _evaluate_system(test: ast.expr) -> bool | None:
    match test:
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return False
        case ast.Compare(
            left=left,
            ops=[ast.Eq() | ast.NotEq() | ast.In() | ast.NotIn() as operator],
            comparators=[right],
        ):
            actual, expected = _platform(left), _literals(right)
            equal = isinstance(operator, (ast.Eq, ast.In))
            if actual is None:
                actual, expected = _platform(right), _literals(left)
                if isinstance(operator, (ast.In, ast.NotIn)):
                    # `"win" in sys.platform` tests for a part of it.
                    if actual in (None, "module") or expected is None:
                        return None
                    return (expected[0] in actual) is equal
            if actual is None or expected is None:
                return None
            return (actual in expected) is equal
        case ast.Call(func=ast.Attribute(value=inner, attr="startswith"), args=[prefix]):
            actual, expected = _platform(inner), _literals(prefix)
            if actual is None or expected is None:
                return None
            return any(actual.startswith(start) for start in expected)
    return None


def _platform(node: ast.expr) -> str | None:
    """Return the value of a standard library expression for the system on Linux."""
    text = ast.unparse(node) if isinstance(node, (ast.Attribute, ast.Name, ast.Call)) else ""
    return {
        "os.name": "posix",
        "sys.platform": "linux",
        "platform.system()": "Linux",
        "platform.system().lower()": "linux",
        "__name__": "module",
    }.get(text[:40])


def _literals(node: ast.expr) -> tuple[str, ...] | None:
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    texts = [
        part.value for part in parts if isinstance(part, ast.Constant) and type(part.value) is str
    ]
    return tuple(texts) if len(texts) == len(parts) else None
