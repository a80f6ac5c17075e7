"""One parsed module of a distribution, and its calls that load libraries."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from buildmatrix.facts.python_imports.skeleton import NOTHING_OMITTED, OmittedBodies
from buildmatrix.facts.python_imports.syntax import (
    Function,
    children,
    evaluated_at_definition,
    last_name,
    walk,
)
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
