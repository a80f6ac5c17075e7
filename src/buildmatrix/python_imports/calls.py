"""Which calls load a library, by their names, and where a module may make them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from buildmatrix.python_imports.module import Module
from buildmatrix.python_imports.syntax import children, last_name, made_of, walk
from buildmatrix.python_imports.values import Value

#: Call → exception that it raises when the library cannot be loaded; none for a search.
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
    # No library, but an operator of torch that one must have registered: `name::operator`.
    "register_fake": "RuntimeError",
    "impl_abstract": "RuntimeError",
}
#: Functions that import a module by its name.
IMPORTS = frozenset({"import_module", "__import__"})
#: Objects of ctypes that load libraries of Windows, which no Linux has.
WINDOWS = frozenset({"windll", "oledll"})
#: Of those in `RAISES` the ones that load nothing, but need a load to have happened.
OPERATORS = frozenset({"register_fake", "impl_abstract"})
_BY_PATH = frozenset({"spec_from_file_location", "ExtensionFileLoader", "load_dynamic"})
#: Parameters that such a path may be given by, and those for the names of libraries.
_PATHS = ("location", "path", "pathname", "file")
_NAMES = ("name", "libname", "path", "filename", "library_filename", "library_location", "file")
_DEFINING = frozenset({"define", "custom_op", "triton_op"})


def defines_operators(module: Module) -> bool:
    """Whether a module defines operators of torch itself, in Python."""
    for node in walk(module.tree):
        if isinstance(node, ast.Call):
            if last_name(node.func) in _DEFINING:
                return True
            if last_name(node.func) == "Library" and any(
                isinstance(child, ast.Constant) and child.value in ("DEF", "FRAGMENT")
                for child in node.args
            ):
                return True
    return False


def is_load(node: ast.Call) -> str | None:
    """The name of the call when it loads or searches a library, as in `RAISES`."""
    name = last_name(node.func)
    if name not in RAISES or not (node.args or node.keywords):
        return None
    if isinstance(node.func, ast.Attribute) and last_name(node.func.value) in WINDOWS:
        return None
    argument = library_argument(node)
    # CDLL(None) is the process itself.
    return None if isinstance(argument, ast.Constant) and argument.value is None else name


def is_silent(call: str) -> bool:
    """Whether a call says nothing of libraries unless one can be read off it."""
    return call in OPERATORS or call in _BY_PATH


def library_argument(node: ast.Call) -> ast.expr:
    """The argument of a load that names the library."""
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
    """Names of the libraries that a call loads; none when they are computed."""
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
class Loading:
    """Where a module that holds loads may run them."""

    #: Functions and classes that load a library, or call one that does.
    functions: frozenset[str]
    #: Whether a statement at the module's level loads, or calls one of these.
    at_import: bool


def loading(module: Module) -> Loading:
    """Where `module` may load libraries."""
    bodies: dict[str, ast.AST] = {**module.functions, **module.classes}
    calls = {
        name: {last_name(child.func) for child in walk(node) if isinstance(child, ast.Call)}
        for name, node in bodies.items()
    }
    loaders = {name for name, called in calls.items() if called & RAISES.keys()}
    while more := {name for name, called in calls.items() if called & loaders} - loaders:
        loaders |= more
    at_import = any(_loads_or_calls(node, loaders) for node in module.tree.body)
    return Loading(frozenset(loaders), at_import)


def _loads_or_calls(statement: ast.stmt, functions: set[str]) -> bool:
    """Whether a statement at a module's level loads a library or calls one of `functions`."""
    ahead: list[ast.AST] = [statement]
    while ahead:
        node = ahead.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            ahead.extend(made_of(node))
            continue
        if isinstance(node, ast.Call) and (
            last_name(node.func) in RAISES or last_name(node.func) in functions
        ):
            return True
        ahead.extend(children(node))
    return False
