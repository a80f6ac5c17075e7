"""What a `try` or a condition around a statement means for the exceptions that it raises."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from buildmatrix.inventory.syntax import last_name, walk

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
                return Handler(catches, last_name(raised) or "Exception")
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
            yield last_name(one) or "?"
    else:
        yield last_name(node) or "?"


def suppressed(node: ast.expr) -> Iterator[Guard]:
    """The guard of a `with contextlib.suppress(...)`."""
    if isinstance(node, ast.Call) and last_name(node.func) == "suppress":
        yield (Handler(frozenset(last_name(one) or "?" for one in node.args)),)


def needed_afterwards(node: ast.Try, after: Sequence[ast.stmt]) -> bool:
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
