"""Outlines of Python files. Nothing is ever imported or run.

An outline is found with regular expressions, a hundred times as fast as with the parser, and may
include too much: it only decides which files are worth parsing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import merge
from itertools import islice
from sys import intern

from buildmatrix.facts.elf.sieve import IS_FAST, make_word_search
from buildmatrix.facts.python_imports.parser import normalize_source, startup_lines
from buildmatrix.facts.python_imports.statements import (
    begins_line,
    bound_names,
    find_imports,
    imported_names,
    join_names,
)

#: Size limit of a source file that is parsed whole; of larger ones, an excerpt.
LARGEST_SOURCE = 1 << 20
#: Bytes of a source file that are searched.
LARGEST_SEARCHED = 8 << 20


#: A file with none of these words loads no library by name.
_LOADING_WORDS = (
    b"CDLL",
    b"PyDLL",
    b"cdll",
    b"pydll",
    b"LoadLibrary",
    b"dlopen",
    b"find_library",
    b"load_library",
    b"load_op_library",
    b"load_nvidia_dynamic_lib",
    b"spec_from_file_location",
    b"ExtensionFileLoader",
    b"load_dynamic",
    b"register_fake",
    b"impl_abstract",
)
#: The same words: words with a rare common string share a pattern, which is searched for first;
#: long ones are found faster alone.
_SHARED = (
    re.compile(rb"DLL(?:(?<=CDLL)|(?<=PyDLL))"),
    re.compile(rb"dll(?:(?<=cdll)|(?<=pydll))"),
    re.compile(
        rb"oad(?:(?<=Load)Library|(?<=load)_(?:library|op_library|nvidia_dynamic_lib|dynamic))"
    ),
)
_ALONE = tuple(
    word for word in _LOADING_WORDS if not any(pattern.search(word) for pattern in _SHARED)
)
_has_word = make_word_search(_LOADING_WORDS)
_ANY_WORD = re.compile(b"|".join(_LOADING_WORDS))
#: Words of all calls with several spellings.
NORMALIZED_WORDS = re.compile(b"|".join((*_LOADING_WORDS, b"import_module", b"__import__")))
#: Body of a `try` at the beginning of a line, and of its handlers.
_TRY = re.compile(
    rb"^try[ \t]*:(?P<body>[^\n]*\n(?:[ \t#][^\n]*\n|\r?\n)*)"
    rb"(?P<handlers>(?:except[^\n]*\n(?:[ \t#][^\n]*\n?|\r?\n)*)+)",
    re.MULTILINE,
)
_RAISES = re.compile(rb"^[ \t]+raise\b|:[ \t]*raise\b", re.MULTILINE)
#: Functions that import a module by name, and lines that rename them.
_IMPORTING = (b"import_module", b"__import__")
_RENAMED = re.compile(
    rb"\b(?:%b)[ \t]+as[ \t]+(\w+)"
    rb"|^[ \t]*(\w+)[ \t]*=[ \t]*(?:[\w.]+\.)?(?:%b)[ \t]*(?:#[^\n]*)?\r?$"
    % ((b"|".join(_IMPORTING),) * 2)
)
#: Entry in the imports for computed names.
ANY_MODULE = "*"
#: The same in a module's `__getattr__` (PEP 562), which Python calls for submodules.
ANY_SUBMODULE = "*."
_ATTRIBUTES = b"__getattr__"
_imports_by_call = make_word_search(_IMPORTING)
_runs_text = make_word_search((b"exec", b"eval"))
#: A text that begins with an import and may be run.
_RUN_TEXT = re.compile(rb"[\"'][ \t]*((?:from|import)\b[^\n\"']*)")
_DEFINITION = re.compile(rb"(?:async[ \t]+)?def[ \t]+(\w+)")
#: Head of a function, or of a block for type checkers only.
_BLOCK = re.compile(
    rb"\n([ \t]*)(?:(?:async[ \t]+)?def[ \t]+(\w+)|if[ \t]+(?:\w+\.)?TYPE_CHECKING[ \t]*:)"
)
#: Comments, and ends of brackets.
_NO_CODE = re.compile(rb"\n[ \t]*[#)\]}][^\n]*")
#: Calls of plain names.
_CALLED = re.compile(rb"(?<![.\w])(\w+)\(")
#: Text allowed between a name and a dot or a bracket; dotted names, and if they are called.
#: Possessive where Python supports it: else the engine would remember 200 bytes of each name of a
#: chain.
_GAP = rb"(?:[\s\\]|#[^\n]*\n)*"
_KEEP = b"+" if sys.version_info >= (3, 11) else b""
_DOTTED = re.compile(
    rb"\b(\w+%b(?:%b\.%b\w+%b)*%b)(%b\()?" % (_KEEP, _GAP, _GAP, _KEEP, _KEEP, _GAP)
)
_GAPS = re.compile(_GAP)
#: Calls of one function that are examined.
MOST_CALLS = 10
#: Lines above a call that are searched for its function.
MOST_LINES = 2000
#: Imported names recorded per file.
MOST_IMPORTS = 5000


@dataclass(frozen=True, slots=True)
class Outline:
    """Possible imports of a Python file, and if it may load libraries by name."""

    #: As written: `a.b`, and `a.b.c` for `from a.b import c`; leading dots for relative ones; `*`
    #: if the file imports modules by computed names.
    imports: tuple[str, ...] = ()
    loads: bool = False
    #: Imports at the beginning of a line: neither in a function nor behind a condition.
    plain: tuple[str, ...] = ()
    #: Imports in a `try` at the beginning of a line whose handlers raise nothing.
    tried: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_outline, (self.imports, self.loads, self.plain, self.tried)


def intern_outline(outline: Outline) -> Outline:
    """Return an equal outline whose names are shared objects.

    Names that every file imports would take half of the memory of a large tree.
    """
    return _rebuild_outline(outline.imports, outline.loads, outline.plain, outline.tried)


def _rebuild_outline(imports: Iterable[str], loads: bool, *others: Iterable[str]) -> Outline:
    """Rebuild an outline from another process; see `intern_outline`."""
    names, plain, tried = (tuple(map(intern, group)) for group in (imports, *others))
    return Outline(names, loads, names if plain == names else plain, tried)


def make_outline(source: bytes) -> Outline:
    """Return the outline of a Python file."""
    source = normalize_source(source)
    everything: dict[str, None] = {}
    plain: dict[str, None] = {}
    for match in find_imports(source):
        names = dict.fromkeys(imported_names(match))
        everything |= names
        if begins_line(match):
            plain |= names
    if _runs_text(source):
        for text in _RUN_TEXT.finditer(source):
            for match in find_imports(text[1]):
                everything |= dict.fromkeys(imported_names(match))
    everything |= dict.fromkeys(_find_imported_by_call(source))
    return Outline(
        _limit(everything),
        has_loading_word(source),
        _limit(plain),
        _limit(dict.fromkeys(_find_tried(source))),
    )


def is_sourceless(path: str) -> bool:
    """True if a file is compiled Python that is imported without its source (PEP 3147)."""
    return path.endswith(".pyc") and "__pycache__" not in path.split("/")


def runs_at_startup(path: str) -> bool:
    """True if `site` runs lines of a file when Python starts, depending on its folder."""
    return path.endswith(".pth")


def make_startup_outline(source: bytes) -> Outline | None:
    """Return the outline of a `.pth` file; None if no line is run."""
    lines = startup_lines(source)
    return make_outline(lines) if lines.strip() else None


def make_compiled_outline(data: bytes) -> Outline:
    """Return the outline of compiled Python: any import, and loads if it has a word of one.

    Names are stored in plain text. The file is not decoded: `marshal` trusts its input.
    """
    return Outline(imports=(ANY_MODULE,), loads=has_loading_word(data))


def _find_imported_by_call(source: bytes) -> Iterator[str]:
    """Yield modules that calls import by name, and `*` if such a name is computed."""
    if not _imports_by_call(source):
        return
    names = sorted(find_renamed_imports(source))[:MOST_CALLS]
    called = b"|".join((*_IMPORTING, *names))
    # A new name may have one letter, and occur anywhere.
    find = re.Pattern.finditer if names else _find_at_words
    literal = re.compile(rb"\b(?:%b)\s*\(\s*(?:name\s*=\s*)?[\"']([.\w]+)[\"']" % called)
    for match in find(literal, source):
        yield match[1].decode("utf-8", "replace")
    constant = rb"(?:name\s*=\s*)?[\"'\s][.\w]*[\"']\s*[,)]"
    computed = re.compile(rb"\b(?:%b)\s*\(\s*(?!%b)" % (called, constant))
    computed_calls = list(islice(find(computed, source), MOST_CALLS))
    if any(_may_run(source, match.start()) for match in computed_calls):
        yield ANY_MODULE
    elif any(
        _find_function_around(source, match.start()) == _ATTRIBUTES for match in computed_calls
    ):
        yield ANY_SUBMODULE


def _find_at_words(pattern: re.Pattern[bytes], source: bytes) -> Iterator[re.Match[bytes]]:
    """Yield the matches of `pattern.finditer`, faster; all begin with a word of `_IMPORTING`."""
    end = 0
    for at in merge(*(_find_places(word, source) for word in _IMPORTING)):
        if at >= end and (match := pattern.match(source, at)):
            yield match
            end = match.end()


def _find_places(word: bytes, source: bytes) -> Iterator[int]:
    at = source.find(word)
    while at >= 0:
        yield at
        at = source.find(word, at + 1)


def find_renamed_imports(source: bytes) -> set[bytes]:
    """Return other names that a file gives to the functions that import by name."""
    names: set[bytes] = set()
    line_end = 0
    for at in merge(*(_find_places(word, source) for word in _IMPORTING)):
        if at < line_end:
            continue
        start, end = source.rfind(b"\n", 0, at) + 1, source.find(b"\n", at)
        line_end = end if end >= 0 else len(source)
        for match in _RENAMED.finditer(source[start:line_end]):
            names.update(name for name in match.groups() if name)
    return names


def has_loading_word(source: bytes) -> bool:
    """True if the file has a word of a loading call."""
    if IS_FAST:
        return _has_word(source)
    return any(pattern.search(source) for pattern in _SHARED) or any(
        word in source for word in _ALONE
    )


def find_run_imports(source: bytes) -> Iterator[str]:
    """Yield the imports that an import of a file runs, by its text, as in `Outline.imports`.

    Functions that the file does not call and blocks for type checkers are skipped; a module's
    `__getattr__` is not, since users call it.
    """
    source = normalize_source(source)
    matches = list(find_imports(source))
    if not all(begins_line(match) and b"import" not in (match[2] or b"") for match in matches):
        # One is indented, or a bracket behind it hides another one.
        outside, functions = _split_functions(source)
        called = {_ATTRIBUTES, *_CALLED.findall(_NO_CODE.sub(b"", outside))}
        inside = (text for name, text in functions if name in called)
        matches = [match for text in (outside, *inside) for match in find_imports(text)]
    for match in matches:
        yield from imported_names(match)
    yield from _find_imported_by_call(source)


def may_call_at_import(source: bytes, is_relevant: Callable[[str], bool]) -> bool:
    """True if an import of a file may call a relevant name that it imports.

    This goes by the text and allows too much: only the syntax tree decides. `is_relevant` gets the
    whole name of the call, which begins like the names of `Outline.imports`.
    """
    outside, functions = _split_functions(source)
    called: dict[str, set[str]] = {}
    for name in {match[1] for match in _DOTTED.finditer(outside) if match[2]}:
        first, _, rest = _GAPS.sub(b"", name).decode("utf-8", "replace").partition(".")
        called.setdefault(first, set()).add(rest)
    if any(name.decode("utf-8", "replace") in called for name, _ in functions):
        return True
    return any(
        is_relevant(join_names(name, rest) if rest else name)
        for match in find_imports(source)
        for local, name in bound_names(match)
        for rest in called.get(local, ())
    )


def _split_functions(source: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Split text into code outside of functions, and the name and text of outermost functions.

    Blocks for type checkers count as a function that is never called.
    """
    outside: list[bytes] = []
    functions: list[tuple[bytes, bytes]] = []
    source = b"\n" + source
    at = 0
    while (start := _BLOCK.search(source, at)) is not None:
        end = _block_end_pattern(len(start[1])).search(source, start.end())
        stop = end.start() if end is not None else len(source)
        outside.append(source[at : start.start()])
        functions.append((start[2] or b"", source[start.start() : stop]))
        at = stop
    outside.append(source[at:])
    return b"".join(outside), functions


@lru_cache(maxsize=64)
def _block_end_pattern(indent: int) -> re.Pattern[bytes]:
    """Return the first line behind a block whose head has `indent` spaces and tabs."""
    return re.compile(rb"\n[ \t]{0,%d}[^\s#)\]}]" % indent)


def _may_run(source: bytes, at: int) -> bool:
    """True if an import of the module may run the code at `at`, by its text.

    It is outside of functions, or in one that is called outside of functions.
    """
    name = _find_function_around(source, at)
    if name is None:
        return True
    called = re.compile(rb"(?<!def )\b" + re.escape(name) + rb"\(")
    return any(
        _find_function_around(source, match.start()) is None
        for match in islice(called.finditer(source), MOST_CALLS)
    )


def _find_function_around(source: bytes, at: int) -> bytes | None:
    """Return the outermost function around `at`, following lines of decreasing indentation."""
    start = source.rfind(b"\n", 0, at) + 1
    indent = len(source[start:at]) - len(source[start:at].lstrip())
    name: bytes | None = None
    lines = MOST_LINES
    while indent and start and lines:
        lines -= 1
        end = start - 1
        start = source.rfind(b"\n", 0, end) + 1
        line = source[start:end]
        text = line.lstrip()
        if text and not text.startswith((b"#", b")")) and len(line) - len(text) < indent:
            indent = len(line) - len(text)
            if match := _DEFINITION.match(text):
                name = match[1]
    return name


def _limit(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(islice(names, MOST_IMPORTS))


def find_loading_lines(source: bytes, words: re.Pattern[bytes] = _ANY_WORD) -> tuple[int, ...]:
    """Return the numbers of the lines with one of `words`, from 1; loading words by default."""
    lines: dict[int, None] = {}
    at, line = 0, 1
    for match in words.finditer(source):
        line += source.count(b"\n", at, match.start())
        at = match.start()
        lines[line] = None
    return tuple(lines)


def _find_tried(source: bytes) -> Iterator[str]:
    if b"\ntry" not in source and not source.startswith(b"try"):
        return
    for block in _TRY.finditer(source):
        if not _RAISES.search(block["handlers"]):
            for match in find_imports(block["body"]):
                yield from imported_names(match)
