"""What a Python file says at a glance. Nothing is ever imported or run.

The outline is found with regular expressions, at a hundred times the speed of the parser, and is
allowed to say too much: it only decides which files are worth parsing.
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

from buildmatrix.python_imports.import_lines import (
    begins_line,
    bound_names,
    import_matches,
    imported_names,
    joined,
)
from buildmatrix.python_imports.reading import normalized, startup_lines

#: Bytes of a source file that is parsed as it is; of larger ones, an excerpt.
LARGEST_SOURCE = 1 << 20
#: Bytes of a source file that are looked at.
LARGEST_SEARCHED = 8 << 20


#: Words without which a file loads no library by its name.
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
#: The same words: several in one pattern where they have a rare string in common, which is then
#: searched for; the long ones are found faster alone.
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
_ANY_WORD = re.compile(b"|".join(_LOADING_WORDS))
#: Words of all calls that may be written in several ways.
RESPELLED = re.compile(b"|".join((*_LOADING_WORDS, b"import_module", b"__import__")))
#: What stands below a `try` at the beginning of a line, and what below its handlers.
_TRY = re.compile(
    rb"^try[ \t]*:(?P<body>[^\n]*\n(?:[ \t#][^\n]*\n|\r?\n)*)"
    rb"(?P<handlers>(?:except[^\n]*\n(?:[ \t#][^\n]*\n?|\r?\n)*)+)",
    re.MULTILINE,
)
_RAISES = re.compile(rb"^[ \t]+raise\b|:[ \t]*raise\b", re.MULTILINE)
#: Functions that import a module by its name, and a line that gives them another name.
_IMPORTING = (b"import_module", b"__import__")
_RENAMED = re.compile(
    rb"\b(?:%b)[ \t]+as[ \t]+(\w+)"
    rb"|^[ \t]*(\w+)[ \t]*=[ \t]*(?:[\w.]+\.)?(?:%b)[ \t]*(?:#[^\n]*)?\r?$"
    % ((b"|".join(_IMPORTING),) * 2)
)
#: What stands among the imports for those whose names are put together.
ANY_MODULE = "*"
#: The same where a module's `__getattr__` does so (PEP 562), which is asked for submodules.
ANY_SUBMODULE = "*."
_ATTRIBUTES = b"__getattr__"
#: A text that begins with an import, which may be run.
_RUN_TEXT = re.compile(rb"[\"'][ \t]*((?:from|import)\b[^\n\"']*)")
_DEFINITION = re.compile(rb"(?:async[ \t]+)?def[ \t]+(\w+)")
#: The head of a function, or of what is there for type checkers only.
_BLOCK = re.compile(
    rb"\n([ \t]*)(?:(?:async[ \t]+)?def[ \t]+(\w+)|if[ \t]+(?:\w+\.)?TYPE_CHECKING[ \t]*:)"
)
#: Comments, and ends of brackets.
_NO_CODE = re.compile(rb"\n[ \t]*[#)\]}][^\n]*")
#: What is called by one name.
_CALLED = re.compile(rb"(?<![.\w])(\w+)\(")
#: What may stand between a name and a dot or a bracket; dotted names, and whether they are called.
#: Possessive where Python has that: the engine would remember 200 bytes of each name of a chain.
_GAP = rb"(?:[\s\\]|#[^\n]*\n)*"
_KEEP = b"+" if sys.version_info >= (3, 11) else b""
_DOTTED = re.compile(
    rb"\b(\w+%b(?:%b\.%b\w+%b)*%b)(%b\()?" % (_KEEP, _GAP, _GAP, _KEEP, _KEEP, _GAP)
)
_GAPS = re.compile(_GAP)
#: Calls of one function that are looked at.
MOST_CALLS = 10
#: Lines above a call in which its function is looked for.
MOST_LINES = 2000
#: Names that one file imports and that are kept.
MOST_IMPORTS = 5000


@dataclass(frozen=True, slots=True)
class Outline:
    """What a Python file may import, and whether it may load libraries by their names."""

    #: As written: `a.b`, and `a.b.c` for `from a.b import c`; leading dots for relative ones;
    #: `*` where the file imports modules whose names are put together.
    imports: tuple[str, ...] = ()
    loads: bool = False
    #: Those that stand at the beginning of a line: neither in a function nor behind a condition.
    plain: tuple[str, ...] = ()
    #: Those in a `try` at the beginning of a line whose handlers raise nothing.
    tried: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[object, ...]:
        return _arrived, (self.imports, self.loads, self.plain, self.tried)


def shared(outline: Outline) -> Outline:
    """The same outline, whose names are the same objects as in all others.

    Half of the memory of a large tree would go into names that every file imports.
    """
    return _arrived(outline.imports, outline.loads, outline.plain, outline.tried)


def _arrived(imports: Iterable[str], loads: bool, *others: Iterable[str]) -> Outline:
    """An outline from another process; see `shared`."""
    names, plain, tried = (tuple(map(intern, group)) for group in (imports, *others))
    return Outline(names, loads, names if plain == names else plain, tried)


def outline(source: bytes) -> Outline:
    """The outline of a Python file."""
    source = normalized(source)
    everything: dict[str, None] = {}
    plain: dict[str, None] = {}
    for match in import_matches(source):
        names = dict.fromkeys(imported_names(match))
        everything |= names
        if begins_line(match):
            plain |= names
    if b"exec" in source or b"eval" in source:
        for text in _RUN_TEXT.finditer(source):
            for match in import_matches(text[1]):
                everything |= dict.fromkeys(imported_names(match))
    everything |= dict.fromkeys(_called(source))
    return Outline(
        _most(everything),
        has_loading_word(source),
        _most(plain),
        _most(dict.fromkeys(_tried(source))),
    )


def is_sourceless(path: str) -> bool:
    """Whether a file is compiled Python that is imported without its source (PEP 3147)."""
    return path.endswith(".pyc") and "__pycache__" not in path.split("/")


def runs_at_startup(path: str) -> bool:
    """Whether `site` runs lines of a file when Python starts, if it lies where Python looks."""
    return path.endswith(".pth")


def startup_outline(source: bytes) -> Outline | None:
    """The outline of a `.pth` file; None where nothing in it is run."""
    lines = startup_lines(source)
    return outline(lines) if lines.strip() else None


def compiled_outline(data: bytes) -> Outline:
    """The outline of compiled Python: any import, and loads where it has a name of one.

    Its names stand in it as they are. It is not taken apart: `marshal` trusts what it reads.
    """
    return Outline(imports=(ANY_MODULE,), loads=has_loading_word(data))


def _called(source: bytes) -> Iterator[str]:
    """Modules that calls import by their names, and `*` where such a name is put together."""
    if not any(word in source for word in _IMPORTING):
        return
    names = sorted(_renamed(source))[:MOST_CALLS]
    called = b"|".join((*_IMPORTING, *names))
    # A new name may be one letter, and stand anywhere.
    find = re.Pattern.finditer if names else _at_words
    literal = re.compile(rb"\b(?:%b)\s*\(\s*(?:name\s*=\s*)?[\"']([.\w]+)[\"']" % called)
    for match in find(literal, source):
        yield match[1].decode("utf-8", "replace")
    constant = rb"(?:name\s*=\s*)?[\"'\s][.\w]*[\"']\s*[,)]"
    computed = re.compile(rb"\b(?:%b)\s*\(\s*(?!%b)" % (called, constant))
    computed_calls = list(islice(find(computed, source), MOST_CALLS))
    if any(_may_run(source, match.start()) for match in computed_calls):
        yield ANY_MODULE
    elif any(_function_around(source, match.start()) == _ATTRIBUTES for match in computed_calls):
        yield ANY_SUBMODULE


def _at_words(pattern: re.Pattern[bytes], source: bytes) -> Iterator[re.Match[bytes]]:
    """What `pattern.finditer` finds, sooner; all of it begins with a word of `_IMPORTING`."""
    end = 0
    for at in merge(*(_places(word, source) for word in _IMPORTING)):
        if at >= end and (match := pattern.match(source, at)):
            yield match
            end = match.end()


def _places(word: bytes, source: bytes) -> Iterator[int]:
    at = source.find(word)
    while at >= 0:
        yield at
        at = source.find(word, at + 1)


def _renamed(source: bytes) -> set[bytes]:
    """Other names that a file gives to the functions that import by name."""
    names: set[bytes] = set()
    line_end = 0
    for at in merge(*(_places(word, source) for word in _IMPORTING)):
        if at < line_end:
            continue
        start, end = source.rfind(b"\n", 0, at) + 1, source.find(b"\n", at)
        line_end = end if end >= 0 else len(source)
        for match in _RENAMED.finditer(source[start:line_end]):
            names.update(name for name in match.groups() if name)
    return names


def renames_imports(source: bytes) -> bool:
    """Whether a file gives the functions that import by name another name."""
    return bool(_renamed(source))


def has_loading_word(source: bytes) -> bool:
    """Whether a word is there without which no library is loaded."""
    return any(pattern.search(source) for pattern in _SHARED) or any(
        word in source for word in _ALONE
    )


def imported_at_once(source: bytes) -> Iterator[str]:
    """What an import of a file imports in turn, judged by its text, as in `Outline.imports`.

    Not what stands in a function that the file does not call, nor what is there for type checkers;
    but what a module's `__getattr__` imports, since users ask for it.
    """
    source = normalized(source)
    matches = list(import_matches(source))
    if all(_stands_alone(match) for match in matches):
        for match in matches:
            yield from imported_names(match)
    else:
        outside, functions = _outside_functions(source)
        called = {_ATTRIBUTES, *_CALLED.findall(_NO_CODE.sub(b"", outside))}
        inside = (text for name, text in functions if name in called)
        for text in (outside, *inside):
            for match in import_matches(text):
                yield from imported_names(match)
    yield from _called(source)


def _stands_alone(match: re.Match[bytes]) -> bool:
    """Whether an import is not indented, and no bracket behind it hides another one."""
    return begins_line(match) and b"import" not in (match[2] or b"")


def may_call_at_once(source: bytes, is_relevant: Callable[[str], bool]) -> bool:
    """Whether an import of a file may call what it imports, and what of it `is_relevant`.

    Judged by its text, which allows too much: only its syntax tree decides. `is_relevant` gets
    the whole name of what is called, which begins like the names of `Outline.imports`.
    """
    outside, functions = _outside_functions(source)
    called: dict[str, set[str]] = {}
    for name in {match[1] for match in _DOTTED.finditer(outside) if match[2]}:
        first, _, rest = _GAPS.sub(b"", name).decode("utf-8", "replace").partition(".")
        called.setdefault(first, set()).add(rest)
    if any(name.decode("utf-8", "replace") in called for name, _ in functions):
        return True
    return any(
        is_relevant(joined(name, rest) if rest else name)
        for match in import_matches(source)
        for local, name in bound_names(match)
        for rest in called.get(local, ())
    )


def _outside_functions(source: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """What stands in no function, and each outermost function: its name and what is in it.

    What is there for type checkers counts as a function that is never called.
    """
    outside: list[bytes] = []
    functions: list[tuple[bytes, bytes]] = []
    source = b"\n" + source
    at = 0
    while (start := _BLOCK.search(source, at)) is not None:
        end = _behind(len(start[1])).search(source, start.end())
        stop = end.start() if end is not None else len(source)
        outside.append(source[at : start.start()])
        functions.append((start[2] or b"", source[start.start() : stop]))
        at = stop
    outside.append(source[at:])
    return b"".join(outside), functions


@lru_cache(maxsize=64)
def _behind(indent: int) -> re.Pattern[bytes]:
    """The first line behind a block whose head is indented by `indent` spaces and tabs."""
    return re.compile(rb"\n[ \t]{0,%d}[^\s#)\]}]" % indent)


def _may_run(source: bytes, at: int) -> bool:
    """Whether an import of the module may run what stands at `at`, judged by its text.

    It stands in no function, or in one that is called in none.
    """
    name = _function_around(source, at)
    if name is None:
        return True
    called = re.compile(rb"(?<!def )\b" + re.escape(name) + rb"\(")
    return any(
        _function_around(source, match.start()) is None
        for match in islice(called.finditer(source), MOST_CALLS)
    )


def _function_around(source: bytes, at: int) -> bytes | None:
    """Name of the outermost function that `at` is in; lines less and less indented lead there."""
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


def _most(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(islice(names, MOST_IMPORTS))


def loading_lines(source: bytes, words: re.Pattern[bytes] = _ANY_WORD) -> tuple[int, ...]:
    """Numbers of the lines with one of `words`, from 1 on; those of a load, if not said."""
    lines: dict[int, None] = {}
    at, line = 0, 1
    for match in words.finditer(source):
        line += source.count(b"\n", at, match.start())
        at = match.start()
        lines[line] = None
    return tuple(lines)


def _tried(source: bytes) -> Iterator[str]:
    if b"\ntry" not in source and not source.startswith(b"try"):
        return
    for block in _TRY.finditer(source):
        if not _RAISES.search(block["handlers"]):
            for match in import_matches(block["body"]):
                yield from imported_names(match)
