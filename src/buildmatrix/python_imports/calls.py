"""Calls that load libraries, by name, and the places in a module that make them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from buildmatrix.python_imports.module import Module
from buildmatrix.python_imports.syntax import children, evaluated_at_definition, last_name, walk
from buildmatrix.python_imports.values import Value

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
        if isinstance(node, ast.Call):
            if last_name(node.func) in _DEFINING:
                return True
            if last_name(node.func) == "Library" and any(
                isinstance(child, ast.Constant) and child.value in ("DEF", "FRAGMENT")
                for child in node.args
            ):
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
    at_import = any(_loads_or_calls(node, loaders) for node in module.tree.body)
    return LoadingCode(frozenset(loaders), at_import)


def _loads_or_calls(statement: ast.stmt, functions: set[str]) -> bool:
    """True if a statement at module level loads a library or calls one of `functions`."""
    ahead: list[ast.AST] = [statement]
    while ahead:
        node = ahead.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            ahead.extend(evaluated_at_definition(node))
            continue
        if isinstance(node, ast.Call) and (
            last_name(node.func) in RAISES or last_name(node.func) in functions
        ):
            return True
        ahead.extend(children(node))
    return False
