"""Syntax trees of Python files, as far as the parser of this interpreter and memory allow."""

from __future__ import annotations

import ast
import re
import threading
import warnings

#: Signs and line ends of a file that is parsed; the largest file of tensorflow has 75,000. Nothing
#: else says before how much memory a syntax tree takes: one of names and commas takes 700 times
#: its source.
MOST_SIGNS = 100_000
_NO_SIGNS = bytes(
    code for code in range(256) if chr(code).isalnum() or code in b" _\"'#\r\t\\" or code > 127
)
#: Where two threads make syntax trees at once, Python 3.11 may mix up how deep each of them is
#: ("AST constructor recursion depth mismatch"); and filters of warnings are those of all threads.
_PARSING = threading.Lock()
_BLANK_LINES = re.compile(rb"\n{2,}")


class Unparsable(Exception):
    """A file that this interpreter's parser does not take; `reason` is one sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class OtherSyntax(Unparsable):
    """A file in the syntax of another Python, or of none."""


def syntax_tree(source: bytes | str) -> ast.Module:
    """What `ast.parse` makes of a file, for one thread at a time. Raises what it raises."""
    with _PARSING, warnings.catch_warnings():
        # Of invalid escapes, about which its authors may care.
        warnings.simplefilter("ignore")
        return ast.parse(source)


def has_many_signs(source: bytes) -> bool:
    """Whether a file may take more memory as a syntax tree than there is for it."""
    if len(source) <= MOST_SIGNS:
        return False
    return len(_BLANK_LINES.sub(b"\n", source).translate(None, delete=_NO_SIGNS)) > MOST_SIGNS


def parse(source: bytes) -> ast.Module:
    """The syntax tree of a Python file. Raises Unparsable."""
    if has_many_signs(source):
        raise Unparsable(f"more than {MOST_SIGNS} signs and lines: too large to be parsed")
    try:
        return syntax_tree(source)
    except SyntaxError as error:
        position = f" in line {error.lineno}" if error.lineno else ""
        raise OtherSyntax(
            f"no Python that this interpreter parses{position}: {error.msg}"
        ) from None
    except (ValueError, LookupError) as error:
        raise OtherSyntax(f"no Python that this interpreter parses: {error}") from None
    except (RecursionError, MemoryError):
        raise Unparsable("nested too deep to be parsed") from None
