"""Syntax trees of Python files, within the limits of this interpreter's parser and of memory."""

from __future__ import annotations

import ast
import re
import threading
import warnings

#: Signs and line ends of a parsed file; the largest file of tensorflow has 75,000. Nothing else
#: predicts the memory of a syntax tree: one of names and commas takes 700 times its source.
MOST_SIGNS = 100_000
_NO_SIGNS = bytes(
    code for code in range(256) if chr(code).isalnum() or code in b" _\"'#\r\t\\" or code > 127
)
#: If two threads build syntax trees at once, Python 3.11 may mix up their recursion depths ("AST
#: constructor recursion depth mismatch"). Warning filters are also shared by all threads.
_PARSING = threading.Lock()
_BLANK_LINES = re.compile(rb"\n{2,}")


class Unparsable(Exception):
    """A file that this interpreter's parser rejects; `reason` is one sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class OtherSyntax(Unparsable):
    """A file in the syntax of another Python, or not in Python."""


def parse_with_lock(source: bytes | str) -> ast.Module:
    """Parse a file with `ast.parse`, one thread at a time. Raises the same exceptions."""
    with _PARSING, warnings.catch_warnings():
        # Warnings of invalid escapes are for the authors of the file.
        warnings.simplefilter("ignore")
        return ast.parse(source)


def has_many_signs(source: bytes) -> bool:
    """True if the syntax tree of a file may take too much memory."""
    if len(source) <= MOST_SIGNS:
        return False
    return len(_BLANK_LINES.sub(b"\n", source).translate(None, delete=_NO_SIGNS)) > MOST_SIGNS


def parse(source: bytes) -> ast.Module:
    """Parse a Python file. Raises Unparsable."""
    if has_many_signs(source):
        raise Unparsable(f"more than {MOST_SIGNS} signs and lines: too large to be parsed")
    try:
        return parse_with_lock(source)
    except SyntaxError as error:
        position = f" in line {error.lineno}" if error.lineno else ""
        raise OtherSyntax(
            f"no Python that this interpreter parses{position}: {error.msg}"
        ) from None
    except (ValueError, LookupError) as error:
        raise OtherSyntax(f"no Python that this interpreter parses: {error}") from None
    except (RecursionError, MemoryError):
        raise Unparsable("nested too deep to be parsed") from None
