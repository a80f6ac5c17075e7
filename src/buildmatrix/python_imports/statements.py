"""Literals in Python files that are named after a version or a build.

Builders write such files: `version.py` with `cuda = '12.4'`, `build_info.py` with a dictionary.
Only literals at module level are read; nothing is computed or run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from buildmatrix.python_imports.parser import Unparsable, parse

#: File size limit; the largest known, with functions that print it, have 8,000 bytes.
LARGEST = 16 << 10
_MOST_NAMES = 64
_MOST_VALUES = 64
#: Characters of a name or a value; commit hashes have 40.
_LONGEST = 100
_NAMES = re.compile(
    r"(?:^|/)(?:\w*_)?(?:version|build_info|package_info)(?:_\w*)?(?:\.py|/__init__\.py)\Z"
)

#: Name to its texts: one, or those of a list.
Literals = Mapping[str, tuple[str, ...]]


def has_literals(path: str, size: int) -> bool:
    """True if the literals of a file are read, by its name."""
    return size <= LARGEST and _NAMES.search(path) is not None


def read_literals(source: bytes) -> Literals:
    """Return names and keys with their texts, in file order; none if the file is not Python.

    `name = "text"`, `name: type = "text"`, lists and tuples of texts, and the keys of a dictionary,
    or of a call with a list of pairs (`OrderedDict([("key", "text")])`). Names assigned twice are
    dropped.
    """
    try:
        module = parse(source)
    except Unparsable:
        return {}
    result: dict[str, tuple[str, ...]] = {}
    twice: set[str] = set()
    for name, value in _find_pairs(module):
        texts = _read_texts(value)
        if name in result or name in twice:
            twice.add(name)
            result.pop(name, None)
        elif texts and len(name) <= _LONGEST and len(result) < _MOST_NAMES:
            result[name] = texts
    return result


def _find_pairs(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield from _expand_value(name, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield from _expand_value(name, value)


def _expand_value(name: str, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
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


def _read_texts(value: ast.expr) -> tuple[str, ...]:
    items = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
    texts = tuple(
        item.value
        for item in items
        if isinstance(item, ast.Constant)
        and isinstance(item.value, str)
        and 0 < len(item.value) <= _LONGEST
    )
    return texts if len(texts) == len(items) <= _MOST_VALUES else ()
