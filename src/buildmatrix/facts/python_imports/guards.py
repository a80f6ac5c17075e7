"""Effect of a `try` or a condition on the exceptions of the statements inside."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from buildmatrix.facts.python_imports.syntax import evaluate_condition, last_name, walk

_ANYTHING = frozenset({"Exception", "BaseException", ""})
_BASES = {
    "ImportError": _ANYTHING,
    "ModuleNotFoundError": _ANYTHING | {"ImportError"},
    "OSError": _ANYTHING | {"EnvironmentError", "IOError"},
    "FileNotFoundError": _ANYTHING | {"OSError", "EnvironmentError", "IOError"},
    "RuntimeError": _ANYTHING,
    # From cuda-pathfinder.
    "DynamicLibNotFoundError": _ANYTHING | {"RuntimeError"},
    "SystemExit": frozenset({"BaseException", ""}),
}


#: Functions that end the process.
_ENDING = frozenset({"sys.exit", "os._exit", "exit", "quit", "os.abort"})
#: Names of context managers for imports that may fail (`try_import`, `optional`).
_FORGIVING = re.compile(r"import|suppress|optional|ignore")


@dataclass(frozen=True, slots=True)
class Branch:
    """One of several ways that an import can take, one of which must work."""

    #: `path:line` of their common statement.
    place: str
    number: int
    #: Number of ways.
    of: int


@dataclass(frozen=True, slots=True)
class Handler:
    """One `except`: the exceptions it catches (an empty name is everything), and re-raises."""

    catches: frozenset[str]
    #: None: nothing, the exception ends here; an empty name: the same exception again.
    raises: str | None = None
    #: Set if the exception leads to another attempt.
    branch: Branch | None = None


#: The handlers of one `try`; a condition counts as a handler that catches everything.
Guard = tuple[Handler, ...]
CONDITION: Guard = (Handler(frozenset({""})),)


def make_branch(place: str, number: int, of: int) -> Guard:
    """Return a condition with something to load in each of its branches, perhaps."""
    return (Handler(frozenset({""}), branch=Branch(place, number, of)),)


def find_branches(guards: Iterable[Guard]) -> tuple[Branch, ...]:
    """Return the enclosing branches, the outermost first."""
    groups = ((handler.branch for handler in guard) for guard in guards)
    return tuple(item for several in groups for item in dict.fromkeys(several) if item is not None)


def drop_branches(guards: Iterable[Guard]) -> tuple[Guard, ...]:
    """Return the guards that are not branches."""
    return tuple(guard for guard in guards if all(handler.branch is None for handler in guard))


def survives(error: str | None, guards: Sequence[Guard]) -> bool:
    """True if `error` is caught, or cannot happen, so that the import continues."""
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


def make_guard(
    statement: ast.Try,
    scope: Sequence[ast.stmt],
    after: Sequence[ast.stmt] = (),
    assigned: Mapping[str, Sequence[ast.expr]] = MappingProxyType({}),
) -> Guard:
    """Return the handlers of `statement`.

    `scope` is the body of the function or module around it, `after` the statements behind it in its
    own block, and `assigned` the values of module names.
    """
    raised_later: set[str] = set()
    loops: list[ast.For] = []
    for outer in scope:
        for node in walk(outer):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name):
                raised_later.add(node.exc.id)
            elif isinstance(node, ast.For):
                loops.append(node)
    handlers = [_make_handler(handler, raised_later, assigned) for handler in statement.handlers]
    at_last = _raised_by_loop(statement, scope, loops)
    return tuple(
        replace(item, raises=_raised_by_flags(handler, after) or at_last)
        if item.raises is None
        else item
        for item, handler in zip(handlers, statement.handlers, strict=True)
    )


def _raised_by_loop(
    statement: ast.Try, scope: Sequence[ast.stmt], loops: Iterable[ast.For]
) -> str | None:
    """Return the exception raised when a loop has tried all alternatives without success.

    It is raised in the loop's `else`, or at the end of a function that returns on the first
    success.
    """
    for loop in loops:
        if not any(inner is statement for line in loop.body for inner in walk(line)):
            continue
        ended = certain_exception(loop.orelse)
        if ended is not None and any(isinstance(node, ast.Break) for node in walk(loop)):
            return ended
        returns = sum(isinstance(node, ast.Return) for line in scope for node in walk(line))
        guarded = [*statement.body, *statement.orelse]
        if returns == 1 and any(
            isinstance(node, ast.Return) for line in guarded for node in walk(line)
        ):
            return certain_exception(scope[-1:])
    return None


def _raised_by_flags(handler: ast.ExceptHandler, after: Sequence[ast.stmt]) -> str | None:
    """Return the exception of a condition after the `try`, given the handler's constants."""
    flags: dict[str, object] = {}
    for line in handler.body:
        match line:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)):
                flags[name] = value

    def flag_value(test: ast.expr) -> bool | None:
        match test:
            case ast.Name(id=name) if name in flags:
                return bool(flags[name])
            case ast.Compare(
                left=ast.Name(id=name),
                ops=[ast.Is() | ast.IsNot() | ast.Eq() | ast.NotEq() as operator],
                comparators=[ast.Constant(value=value)],
            ) if name in flags:
                return (flags[name] == value) is isinstance(operator, (ast.Is, ast.Eq))
        return None

    for line in after:
        if not flags:
            break
        if isinstance(line, ast.If) and evaluate_condition(line.test, flag_value) is True:
            raised = certain_exception(line.body)
            if raised is not None:
                return raised
        for name in _find_targets([line]):
            flags.pop(name, None)
    return None


def certain_exception(body: Iterable[ast.stmt]) -> str | None:
    """Return the exception that `body` certainly raises."""
    for line in body:
        match line:
            case ast.Raise(exc=None):
                return "Exception"
            case ast.Raise(exc=ast.expr() as raised):
                return last_name(raised) or "Exception"
            case ast.Expr(value=ast.Call(func=called)) if ast.unparse(called) in _ENDING:
                return "SystemExit"
    return None


def _make_handler(
    handler: ast.ExceptHandler,
    raised_later: set[str],
    assigned: Mapping[str, Sequence[ast.expr]],
) -> Handler:
    catches = frozenset(exception_names(handler.type, assigned))
    for statement in handler.body:
        match statement:
            case ast.Raise(exc=None):
                return Handler(catches, "")
            case ast.Raise(exc=ast.Name(id=name)) if name == handler.name:
                return Handler(catches, "")
            case ast.Assign(targets=[ast.Name(id=kept)], value=ast.Name(id=name)) if (
                name == handler.name and kept in raised_later
            ):
                return Handler(catches, "")
        if (raised := certain_exception([statement])) is not None:
            return Handler(catches, raised)
    return Handler(catches)


def exception_names(
    node: ast.expr | None, assigned: Mapping[str, Sequence[ast.expr]] = MappingProxyType({})
) -> Iterator[str]:
    """Yield the last parts of exception names; an empty one for a bare `except`."""
    match node:
        case None:
            yield ""
        case ast.Tuple(elts=several):
            for child in several:
                yield last_name(child) or "?"
        case ast.Name(id=name) if name in assigned:
            for child in assigned[name]:
                yield from exception_names(child)
        case _:
            yield last_name(node) or "?"


def make_context_guard(node: ast.expr) -> Guard | None:
    """Return the guard of `with node:`; None if exceptions pass through it.

    Context managers other than `contextlib.suppress` are judged by their names.
    """
    name = last_name(node) if isinstance(node, ast.Call) else None
    if isinstance(node, ast.Call) and name == "suppress":
        return (Handler(frozenset(last_name(child) or "?" for child in node.args)),)
    return CONDITION if _FORGIVING.search(name or "") else None


def is_needed_afterwards(node: ast.Try, after: Sequence[ast.stmt]) -> bool:
    """True if values assigned in the body are used after the `try`, and no handler assigns them.

    Catching the exception is then useless: a KeyError follows.
    """
    if not any(isinstance(item, ast.Call) for line in node.body for item in walk(line)):
        return False
    assigned = set(_find_targets(node.body))
    for handler in node.handlers:
        assigned -= set(_find_targets(handler.body))
        if any(isinstance(line, (ast.Return, ast.Raise)) for line in handler.body):
            return False
    assigned -= set(_find_targets(node.finalbody))
    if not any("[" in target for target in assigned):
        # Only elements of a table: a plain name may have had a value before.
        return False
    for line in after:
        if not isinstance(line, (ast.Assign, ast.Expr, ast.AnnAssign)):
            continue
        for child in walk(line):
            loaded = isinstance(child, ast.Subscript) and isinstance(child.ctx, ast.Load)
            if loaded and ast.unparse(child) in assigned:
                return True
        assigned -= set(_find_targets([line]))
        if not assigned:
            return False
    return False


def _find_targets(body: Iterable[ast.stmt]) -> Iterator[str]:
    for line in body:
        for node in walk(line):
            if isinstance(node, (ast.Name, ast.Subscript)) and isinstance(node.ctx, ast.Store):
                yield ast.unparse(node)
