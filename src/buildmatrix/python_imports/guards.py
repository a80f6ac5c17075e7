"""What a `try` or a condition around a statement means for the exceptions that it raises."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from buildmatrix.python_imports.syntax import last_name, walk
from buildmatrix.python_imports.system import truth

_ANYTHING = frozenset({"Exception", "BaseException", ""})
_BASES = {
    "ImportError": _ANYTHING,
    "ModuleNotFoundError": _ANYTHING | {"ImportError"},
    "OSError": _ANYTHING | {"EnvironmentError", "IOError"},
    "FileNotFoundError": _ANYTHING | {"OSError", "EnvironmentError", "IOError"},
    "RuntimeError": _ANYTHING,
    # Of cuda-pathfinder.
    "DynamicLibNotFoundError": _ANYTHING | {"RuntimeError"},
    "SystemExit": frozenset({"BaseException", ""}),
}


#: Names of context managers that are there for imports that may fail (`try_import`, `optional`).
_FORGIVING = re.compile(r"import|suppress|optional|ignore")


@dataclass(frozen=True, slots=True)
class Branch:
    """One of several ways that an import can go on, one of which must work."""

    #: `path:line` of the statement that they belong to.
    place: str
    number: int
    #: How many there are.
    of: int


@dataclass(frozen=True, slots=True)
class Handler:
    """One `except`: what it catches (an empty name is everything), and what it raises instead."""

    catches: frozenset[str]
    #: None: nothing, the exception ends here; an empty name: the same one again.
    raises: str | None = None
    #: Where what ends here is not the end, but the beginning of another try.
    branch: Branch | None = None


#: The handlers of one `try`; a condition is taken for a handler that catches everything.
Guard = tuple[Handler, ...]
CONDITION: Guard = (Handler(frozenset({""})),)


def branch(place: str, number: int, of: int) -> Guard:
    """A condition with something to load in each of its branches, perhaps."""
    return (Handler(frozenset({""}), branch=Branch(place, number, of)),)


def branches(guards: Iterable[Guard]) -> tuple[Branch, ...]:
    """The branches that something stands in, the outermost first."""
    groups = ((handler.branch for handler in guard) for guard in guards)
    return tuple(item for several in groups for item in dict.fromkeys(several) if item is not None)


def without_branches(guards: Iterable[Guard]) -> tuple[Guard, ...]:
    """What else there is around."""
    return tuple(guard for guard in guards if all(handler.branch is None for handler in guard))


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


def guard_of(
    statement: ast.Try,
    scope: Sequence[ast.stmt],
    after: Sequence[ast.stmt] = (),
    assigned: Mapping[str, Sequence[ast.expr]] = MappingProxyType({}),
) -> Guard:
    """The handlers of `statement`.

    `scope` is the body of the function or module around it, `after` what follows it in its own
    block, and `assigned` what names of the module stand for.
    """
    raised_later: set[str] = set()
    loops: list[ast.For] = []
    for outer in scope:
        for node in walk(outer):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name):
                raised_later.add(node.exc.id)
            elif isinstance(node, ast.For):
                loops.append(node)
    handlers = [_handler(handler, raised_later, assigned) for handler in statement.handlers]
    at_last = _raised_at_last(statement, scope, loops)
    return tuple(
        replace(item, raises=_raised_by_flags(handler, after) or at_last)
        if item.raises is None
        else item
        for item, handler in zip(handlers, statement.handlers, strict=True)
    )


def _raised_at_last(
    statement: ast.Try, scope: Sequence[ast.stmt], loops: Iterable[ast.For]
) -> str | None:
    """What is raised when a loop has tried one thing after the other without success.

    In its `else`, or at the end of a function that returns the first thing that works.
    """
    for loop in loops:
        if not any(inner is statement for line in loop.body for inner in walk(line)):
            continue
        ended = raised_in(loop.orelse)
        if ended is not None and any(isinstance(node, ast.Break) for node in walk(loop)):
            return ended
        returns = sum(isinstance(node, ast.Return) for line in scope for node in walk(line))
        guarded = [*statement.body, *statement.orelse]
        if returns == 1 and any(
            isinstance(node, ast.Return) for line in guarded for node in walk(line)
        ):
            return raised_in(scope[-1:])
    return None


def _raised_by_flags(handler: ast.ExceptHandler, after: Sequence[ast.stmt]) -> str | None:
    """What a condition behind the `try` raises for the constants that the handler has assigned."""
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
        if isinstance(line, ast.If) and truth(line.test, flag_value) is True:
            raised = raised_in(line.body)
            if raised is not None:
                return raised
        for name in _targets([line]):
            flags.pop(name, None)
    return None


def raised_in(body: Iterable[ast.stmt]) -> str | None:
    """What `body` raises for sure."""
    for line in body:
        match line:
            case ast.Raise(exc=None):
                return "Exception"
            case ast.Raise(exc=ast.expr() as raised):
                return last_name(raised) or "Exception"
            case ast.Expr(value=ast.Call(func=called)) if _ends_the_process(called):
                return "SystemExit"
    return None


def _ends_the_process(called: ast.expr) -> bool:
    return ast.unparse(called) in ("sys.exit", "os._exit", "exit", "quit", "os.abort")


def _handler(
    handler: ast.ExceptHandler,
    raised_later: set[str],
    assigned: Mapping[str, Sequence[ast.expr]],
) -> Handler:
    catches = frozenset(exception_names(handler.type, assigned))
    for statement in handler.body:
        match statement:
            case ast.Expr(value=ast.Call(func=called)) if _ends_the_process(called):
                return Handler(catches, "SystemExit")
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


def exception_names(
    node: ast.expr | None, assigned: Mapping[str, Sequence[ast.expr]] = MappingProxyType({})
) -> Iterator[str]:
    """The last parts of the names of exceptions; an empty one for a bare `except`."""
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


def guard_of_context(node: ast.expr) -> Guard | None:
    """The guard of `with node:`; None where exceptions pass through it.

    Other context managers than `contextlib.suppress` are judged by their names.
    """
    name = last_name(node) if isinstance(node, ast.Call) else None
    if isinstance(node, ast.Call) and name == "suppress":
        return (Handler(frozenset(last_name(child) or "?" for child in node.args)),)
    return CONDITION if _FORGIVING.search(name or "") else None


def needed_afterwards(node: ast.Try, after: Sequence[ast.stmt]) -> bool:
    """Whether what the body assigns is used behind the `try` although no handler assigns it.

    Catching the exception is of no use then: a KeyError follows.
    """
    if not any(isinstance(item, ast.Call) for line in node.body for item in walk(line)):
        return False
    assigned = set(_targets(node.body))
    for handler in node.handlers:
        assigned -= set(_targets(handler.body))
        if any(isinstance(line, (ast.Return, ast.Raise)) for line in handler.body):
            return False
    assigned -= set(_targets(node.finalbody))
    if not any("[" in target for target in assigned):
        # Only elements of a table: a plain name may have been given a value before.
        return False
    for line in after:
        if not isinstance(line, (ast.Assign, ast.Expr, ast.AnnAssign)):
            continue
        for child in walk(line):
            loaded = isinstance(child, ast.Subscript) and isinstance(child.ctx, ast.Load)
            if loaded and ast.unparse(child) in assigned:
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
