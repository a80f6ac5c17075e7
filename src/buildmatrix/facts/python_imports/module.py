"""One parsed module of a distribution, and its calls that load libraries."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from buildmatrix.facts.python_imports.parser import (
    Function,
    children,
    evaluate_condition,
    evaluated_at_definition,
    last_name,
    walk,
)
from buildmatrix.facts.python_imports.skeleton import NOTHING_OMITTED, OmittedBodies
from buildmatrix.facts.python_imports.values import UNKNOWN, Evaluator, Scope, Value, make_scope


@dataclass(slots=True)
class Module:
    """A parsed module."""

    name: str
    path: str
    #: Package that a relative import with one dot refers to.
    package: str
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


# Loading calls


#: Call to the exception that it raises if the library cannot be loaded; None for a search.
RAISES: Mapping[str, str | None] = {
    "CDLL": "OSError",
    "PyDLL": "OSError",
    "LoadLibrary": "OSError",
    "dlopen": "OSError",
    "_dlopen": "OSError",
    "load_library": "OSError",
    "load_op_library": "OSError",
    "find_library": None,
    "load_nvidia_dynamic_lib": "DynamicLibNotFoundError",
    # Extension modules by their path, which is the second argument.
    "spec_from_file_location": "ImportError",
    "ExtensionFileLoader": "ImportError",
    "load_dynamic": "ImportError",
    # Needs an operator of torch that a library must have registered: `name::operator`.
    "register_fake": "RuntimeError",
    "impl_abstract": "RuntimeError",
}
#: Functions that import a module by name.
IMPORTS = frozenset({"import_module", "__import__"})
#: Objects of ctypes that load Windows libraries, which Linux does not have.
WINDOWS = frozenset({"windll", "oledll"})
#: Calls in `RAISES` that load nothing, but need an earlier load.
OPERATORS = frozenset({"register_fake", "impl_abstract"})
_BY_PATH = frozenset({"spec_from_file_location", "ExtensionFileLoader", "load_dynamic"})
#: Parameters for such a path, and those for the names of libraries.
_PATHS = ("location", "path", "pathname", "file")
_NAMES = ("name", "libname", "path", "filename", "library_filename", "library_location", "file")
_DEFINING = frozenset({"define", "custom_op", "triton_op"})


def defines_operators(module: Module) -> bool:
    """True if a module itself defines torch operators, in Python."""
    for node in walk(module.tree):
        name = last_name(node.func) if isinstance(node, ast.Call) else None
        if name in _DEFINING:
            return True
        if isinstance(node, ast.Call) and name == "Library":
            values = [child.value for child in node.args if isinstance(child, ast.Constant)]
            if "DEF" in values or "FRAGMENT" in values:
                return True
    return False


def loading_call_name(node: ast.Call) -> str | None:
    """Return the name of the call, as in `RAISES`, if it loads or searches for a library."""
    name = last_name(node.func)
    if name not in RAISES or not (node.args or node.keywords):
        return None
    if isinstance(node.func, ast.Attribute) and last_name(node.func.value) in WINDOWS:
        return None
    argument = library_argument(node)
    # CDLL(None) is the process itself.
    return None if isinstance(argument, ast.Constant) and argument.value is None else name


def needs_library_name(call: str) -> bool:
    """True if a call is irrelevant to libraries unless it names one."""
    return call in OPERATORS or call in _BY_PATH


def library_argument(node: ast.Call) -> ast.expr:
    """Return the argument of a loading call that names the library."""
    keywords = {word.arg: word.value for word in node.keywords}
    if last_name(node.func) in _BY_PATH:
        if len(node.args) > 1:
            return node.args[1]
    elif node.args:
        return node.args[0]
    for name in _PATHS if last_name(node.func) in _BY_PATH else _NAMES:
        if name in keywords:
            return keywords[name]
    return [*node.args, *keywords.values()][0]


def load_names(call: str, value: Value) -> tuple[str, ...]:
    """Return the names of the libraries that a call loads; empty if they are computed."""
    named = {name for name in value if name.strip("*/.")}
    if call in OPERATORS:
        return tuple(sorted(name for name in named if "::" in name))
    if call in _BY_PATH:
        return tuple(sorted(name for name in named if ".so" in name))
    if call == "find_library":
        named = {f"lib{name}.so*" for name in named}
    elif call == "load_nvidia_dynamic_lib":
        named = {f"lib{name}.so*" for name in named if not name.startswith("lib")}
    return tuple(sorted(named))


@dataclass(frozen=True, slots=True)
class LoadingCode:
    """Places where a module may run loading calls."""

    #: Functions and classes that load a library, or call one that does.
    functions: frozenset[str]
    #: True if a statement at module level loads, or calls one of these.
    at_import: bool


def find_loading_code(module: Module) -> LoadingCode:
    """Find where `module` may load libraries."""
    bodies: dict[str, ast.AST] = {**module.functions, **module.classes}
    calls = {
        name: {last_name(child.func) for child in walk(node) if isinstance(child, ast.Call)}
        for name, node in bodies.items()
    }
    loaders = {name for name, called in calls.items() if called & RAISES.keys()}
    while more := {name for name, called in calls.items() if called & loaders} - loaders:
        loaders |= more
    loading = loaders | RAISES.keys()
    ahead: list[ast.AST] = list(module.tree.body)
    while ahead:
        node = ahead.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            ahead.extend(evaluated_at_definition(node))
            continue
        if isinstance(node, ast.Call) and last_name(node.func) in loading:
            return LoadingCode(frozenset(loaders), at_import=True)
        ahead.extend(children(node))
    return LoadingCode(frozenset(loaders), at_import=False)


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
    handler: ast.ExceptHandler, raised_later: set[str], assigned: Mapping[str, Sequence[ast.expr]]
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
