"""Outcome of conditions on any Linux machine when a module is imported."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence


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
            return _combine(
                [evaluate_condition(value, decide) for value in values],
                isinstance(operator, ast.Or),
            )
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


def _combine(outcomes: Sequence[bool | None], any_of: bool) -> bool | None:
    if any_of in outcomes:
        return any_of
    return None if None in outcomes else not any_of


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
