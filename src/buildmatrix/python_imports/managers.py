"""What a `with` around statements means for the exceptions that they raise."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from buildmatrix.python_imports.guards import CONDITION, Guard, guard_of, suppressed
from buildmatrix.python_imports.program import Function, Module, Program
from buildmatrix.python_imports.syntax import last_name, walk

#: Names of context managers of other distributions that are there for imports that may fail.
_BY_NAME = re.compile(r"import|suppress|optional|ignore")


def managed(program: Program, module: Module, node: ast.expr) -> Iterator[Guard]:
    """The guard of `with node:` in `module`, if it lets exceptions end."""
    if not isinstance(node, ast.Call):
        return
    if last_name(node.func) == "suppress":
        yield from suppressed(node)
        return
    found = _defined(program, module, node.func)
    if found is not None:
        yield from _guards(program, *found)
    elif _BY_NAME.search(last_name(node.func) or ""):
        yield CONDITION


def _guards(program: Program, module: Module, made: Function | ast.ClassDef) -> Iterator[Guard]:
    if isinstance(made, ast.ClassDef):
        if _ends_exceptions(made):
            yield CONDITION
        return
    if any("contextmanager" in (last_name(child) or "") for child in made.decorator_list):
        for node in walk(made):
            if isinstance(node, ast.Try) and any(
                isinstance(child, ast.Yield) for line in node.body for child in walk(line)
            ):
                yield guard_of(node, made.body)
        return
    for result in module.returned(made):
        if isinstance(result, ast.Call):
            found = _defined(program, module, result.func)
            if found is not None and isinstance(found[1], ast.ClassDef):
                yield from _guards(program, *found)


def _ends_exceptions(made: ast.ClassDef) -> bool:
    """Whether `__exit__` may say that an exception ends there."""
    for child in made.body:
        if isinstance(child, ast.FunctionDef) and child.name == "__exit__":
            for node in walk(child):
                match node:
                    case ast.Return(value=ast.Constant(value=True)):
                        return True
                    case ast.Return(value=ast.Compare() | ast.BoolOp()):
                        return True
                    case ast.Return(value=ast.Call(func=ast.Name(id="issubclass" | "isinstance"))):
                        return True
    return False


def _defined(
    program: Program, module: Module, called: ast.expr
) -> tuple[Module, Function | ast.ClassDef] | None:
    """The function or class of the distribution that `called` names, if it is one."""
    first, *rest = ast.unparse(called).split(".")
    if not rest:
        own = _made(program, module, first)
        if own is not None:
            return module, own
    if first not in module.imported:
        return None
    owner = program.owner_of(".".join([module.imported[first], *rest]))
    where = program.module(owner[0]) if owner is not None else None
    if owner is None or where is None:
        return None
    made = _made(program, where, owner[1])
    return None if made is None else (where, made)


def _made(program: Program, module: Module, name: str) -> Function | ast.ClassDef | None:
    function = module.functions.get(name)
    return module.classes.get(name) if function is None else program.whole(module, function)
