"""What a Python file says at a glance, and its syntax tree. Nothing is ever imported or run.

The outline is found with regular expressions, at a hundred times the speed of the parser, and is
allowed to say too much: it only decides which files are worth parsing.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

#: Bytes of a source file; larger ones are generated tables.
LARGEST_SOURCE = 1 << 20

#: Words without which a file loads no library by its name.
_LOADING_WORDS = (
    b"CDLL",
    b"PyDLL",
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
_ANY_WORD = re.compile(b"|".join(_LOADING_WORDS))
_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]*(\([^)]*\)|(?:[^\n#\\]|\\\r?\n)*)"
    rb"|import[ \t]+([^\n#;]*))",
    re.MULTILINE,
)
_CALL = re.compile(rb"\b(?:import_module|__import__)\(\s*[\"']([.\w]+)[\"']")
#: Names that one file imports and that are kept.
MOST_IMPORTS = 5000


@dataclass(frozen=True, slots=True)
class Outline:
    """What a Python file may import, and whether it may load libraries by their names."""

    #: As written: `a.b`, and `a.b.c` for `from a.b import c`; leading dots for relative ones.
    imports: tuple[str, ...] = ()
    loads: bool = False


def outline(source: bytes) -> Outline:
    """The outline of a Python file."""
    names = dict.fromkeys(_imports(source))
    return Outline(
        tuple(list(names)[:MOST_IMPORTS]), any(word in source for word in _LOADING_WORDS)
    )


def loading_lines(source: bytes) -> tuple[int, ...]:
    """Numbers of the lines with a word without which no library is loaded, from 1 on."""
    lines: dict[int, None] = {}
    at, line = 0, 1
    for match in _ANY_WORD.finditer(source):
        line += source.count(b"\n", at, match.start())
        at = match.start()
        lines[line] = None
    return tuple(lines)


def _imports(source: bytes) -> Iterator[str]:
    for origin, names, modules in _IMPORT.findall(source):
        if origin:
            base = origin.decode("utf-8", "replace")
            yield base
            for name in _names(names):
                yield f"{base}{name}" if base.endswith(".") else f"{base}.{name}"
        else:
            yield from _names(modules)
    for name in _CALL.findall(source):
        yield name.decode("utf-8", "replace")


def _names(listing: bytes) -> Iterator[str]:
    text = re.sub(rb"#[^\n]*|[()\\]", b" ", listing).decode("utf-8", "replace")
    for part in text.split(","):
        words = part.split()
        if words and words[0] != "*":
            yield words[0]


class Unparsable(Exception):
    """A file that this interpreter's parser does not take; `reason` is one sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def parse(source: bytes) -> ast.Module:
    """The syntax tree of a Python file. Raises Unparsable."""
    try:
        with warnings.catch_warnings():
            # Of invalid escapes, about which its authors may care.
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        where = f" in line {error.lineno}" if error.lineno else ""
        raise Unparsable(f"no Python that this interpreter parses{where}: {error.msg}") from None
    except (ValueError, LookupError) as error:
        raise Unparsable(f"no Python that this interpreter parses: {error}") from None
    except (RecursionError, MemoryError):
        raise Unparsable("nested too deep to be parsed") from None
