"""What a Python file that is named after its version or its build says of it.

Builders write such files: `version.py` with `cuda = '12.4'`, `build_info.py` with a dictionary.
Only literals at the level of the module are read; nothing is computed or run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from buildmatrix.python_imports.parser import Unparsable, parse

#: Bytes of such a file; the largest that are known, with functions that print it, have 8,000.
LARGEST = 16 << 10
_MOST_NAMES = 64
_MOST_VALUES = 64
#: Characters of a name or a value; hashes of commits have 40.
_LONGEST = 100
_NAMES = re.compile(
    r"(?:^|/)(?:\w*_)?(?:version|build_info|package_info)(?:_\w*)?(?:\.py|/__init__\.py)\Z"
)

#: Name -> its texts: one, or those of a list.
Stated = Mapping[str, tuple[str, ...]]


def is_stating(path: str, size: int) -> bool:
    """Whether a file is read for what it says, by its name."""
    return size <= LARGEST and _NAMES.search(path) is not None


def stated(source: bytes) -> Stated:
    """Names and keys with their texts, in the order of the file; none of what is no Python.

    `name = "text"`, `name: type = "text"`, lists and tuples of texts, and what a dictionary, or a
    call with a list of pairs (`OrderedDict([("key", "text")])`), has under its keys. What is
    assigned twice says nothing.
    """
    try:
        module = parse(source)
    except Unparsable:
        return {}
    result: dict[str, tuple[str, ...]] = {}
    twice: set[str] = set()
    for name, value in _pairs(module):
        texts = _texts(value)
        if name in result or name in twice:
            twice.add(name)
            result.pop(name, None)
        elif texts and len(name) <= _LONGEST and len(result) < _MOST_NAMES:
            result[name] = texts
    return result


def _pairs(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield from _of_value(name, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield from _of_value(name, value)


def _of_value(name: str, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match value:
        case ast.Dict(keys=keys, values=values):
            for written, item in zip(keys, values, strict=True):
                if isinstance(written, ast.Constant) and isinstance(written.value, str):
                    yield written.value, item
        case ast.Call(args=[ast.List(elts=pairs)]):
            for pair in pairs:
                match pair:
                    case ast.Tuple(elts=[ast.Constant(value=str() as key), ast.expr() as item]):
                        yield key, item
        case _:
            yield name, value


def _texts(value: ast.expr) -> tuple[str, ...]:
    items = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
    texts = tuple(
        item.value
        for item in items
        if isinstance(item, ast.Constant)
        and isinstance(item.value, str)
        and 0 < len(item.value) <= _LONGEST
    )
    return texts if len(texts) == len(items) <= _MOST_VALUES else ()
