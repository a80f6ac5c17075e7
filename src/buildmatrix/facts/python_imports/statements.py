"""Import statements and version literals in the text of a Python file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from sys import intern

from buildmatrix.facts.python_imports.parser import Unparsable, parse

# Imports


#: Separator of words in one line, or in lines joined by a backslash.
_GAP = rb"(?:[ \t\f]|\\\n)"
_NAME = rb"[\w\x80-\xff]"
#: From the first word on. `from.a import(b)` needs no space.
_IMPORT = re.compile(
    rb"%(gap)s*(?:from(?!%(name)s)((?:[.]|%(name)s|%(gap)s)*?)"
    rb"(?<!%(name)s)import(?!%(name)s)%(gap)s*(\([^)]{0,20000}\)|(?:[^\n#;\\]|\\\n)*)"
    rb"|import(?!%(name)s)%(gap)s*((?:[^\n#;\\]|\\\n)*))" % {b"gap": _GAP, b"name": _NAME}
)
#: Comments, brackets and backslashes between imported names.
_NO_NAME = re.compile(rb"#[^\n]*|[()\\]")
_GAPS = re.compile(_GAP)
#: Text common to all imports and import calls.
_IMPORT_WORD = re.compile(rb"import")
#: Ends of another statement, or of the head of one.
_STATEMENT_ENDS = (b";", b":")
#: Starts of comments and strings, and their ends.
_QUOTE = re.compile(rb"#|\"\"\"|'''|[\"']")
_ENDS = {sign * 3: re.compile(rb"(?<!\\)(?:\\\\)*" + sign * 3) for sign in (b'"', b"'")}
_LINE_ENDS = {
    b"#": re.compile(rb"\n"),
    **{sign: re.compile(rb"(?<!\\)(?:\\\\)*" + sign + rb"|(?<!\\)\n") for sign in (b'"', b"'")},
}
#: Joined lines searched for the start of a statement.
_MOST_JOINED = 20


def find_import_line(source: bytes, name: str) -> int:
    """Return the first line that imports the module `name`, or a part of it; 1 for none."""
    for match in find_imports(source):
        names = imported_names(match)
        if any(imported == name or imported.startswith(f"{name}.") for imported in names):
            return source.count(b"\n", 0, match.start()) + 1
    return 1


def find_statement_line(source: bytes, name: str) -> int | None:
    """Return the line of an unindented import of `name` outside of strings; None if absent."""
    for match in find_imports(source):
        if begins_line(match) and name in imported_names(match) and _is_code(source, match.start()):
            return source.count(b"\n", 0, match.start()) + 1
    return None


def _is_code(source: bytes, at: int) -> bool:
    """Return True if the line that begins at `at` is not in a string."""
    behind = 0
    while (start := _QUOTE.search(source, behind, at)) is not None:
        end = _ENDS.get(start[0], _LINE_ENDS[start[0][:1]]).search(source, start.end())
        behind = len(source) if end is None else end.end()
    return behind <= at


def find_imports(source: bytes) -> Iterator[re.Match[bytes]]:
    """Yield the import statements of a file; only lines with the word are examined."""
    looked = separated = passed = line = behind = 0
    tried = -1
    for word in _IMPORT_WORD.finditer(source):
        at = word.start()
        if at < passed:
            continue
        # The text before was examined already: a line may have a million such words.
        newline = source.rfind(b"\n", looked, at) + 1
        looked = at
        if newline:
            line = behind = separated = newline
        start = _find_joined_start(source, line)
        match = _IMPORT.match(source, max(start, passed)) if start > tried else None
        tried = max(tried, start)
        if match is None or match.end() <= at:
            for sign in _STATEMENT_ENDS:
                behind = max(behind, source.rfind(sign, separated, at) + 1)
            separated = at
            if behind <= tried:
                continue
            tried = behind
            match = _IMPORT.match(source, behind)
        if match is not None and match.end() > at:
            yield match
            passed = match.end()


def _find_joined_start(source: bytes, line: int) -> int:
    """Return the start of the lines that backslashes join with the one at `line`."""
    for _ in range(_MOST_JOINED):
        if source[line - 2 : line] != b"\\\n":
            break
        line = source.rfind(b"\n", 0, line - 1) + 1
    return line


def begins_line(match: re.Match[bytes]) -> bool:
    """True if an import begins a line, so that nothing encloses it."""
    start = match.start()
    return match[0][:1] in (b"f", b"i") and match.string[start - 1 : start] in (b"", b"\n")


def imported_names(match: re.Match[bytes]) -> Iterator[str]:
    """Yield the names that an import statement imports, as in `Outline.imports`."""
    origin, names, modules = match.groups()
    if origin:
        base = _origin(origin)
        yield intern(base)
        for words in _names(names):
            yield intern(join_names(base, words[0]))
    else:
        for words in _names(modules or b""):
            yield intern(words[0])


def bound_names(match: re.Match[bytes]) -> Iterator[tuple[str, str]]:
    """Yield the local names that an import statement binds, with their dotted names."""
    origin, names, modules = match.groups()
    for words in _names(names if origin else modules or b""):
        name = join_names(_origin(origin), words[0]) if origin else words[0]
        if len(words) > 2:
            yield words[2], name
        elif origin:
            yield words[0], name
        else:
            first = name.partition(".")[0]
            yield first, first


def _origin(written: bytes) -> str:
    return _GAPS.sub(b"", written).decode("utf-8", "replace")


def join_names(base: str, name: str) -> str:
    """Return the dotted name of `name` in the module `base`, which may consist of dots."""
    return f"{base}{name}" if base.endswith(".") else f"{base}.{name}"


def _names(listing: bytes) -> Iterator[list[str]]:
    """Yield the words of each name in a list of imports: the name, or `name as other`."""
    for part in _NO_NAME.sub(b" ", listing).decode("utf-8", "replace").split(","):
        words = part.split()
        if words and words[0] != "*":
            yield words


# Versions. Builders write files of literals: `version.py` with `cuda = '12.4'`, `build_info.py`
# with a dictionary. Only literals at module level are read; nothing is computed or run.


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
    for name, value in chain.from_iterable(map(_find_pairs, module.body)):
        texts = _read_texts(value)
        if name in result or name in twice:
            twice.add(name)
            result.pop(name, None)
        elif texts and len(name) <= _LONGEST and len(result) < _MOST_NAMES:
            result[name] = texts
    return result


def _find_pairs(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            pass
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            pass
        case _:
            return
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
