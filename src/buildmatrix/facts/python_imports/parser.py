"""Syntax trees and normal form of Python files, within limits.

Normal form: text in UTF-8 without a byte order mark, lines ending with a line feed, identifiers in
one spelling; and a syntax tree with fewer kinds of nodes, without parts that are never evaluated,
and with the code in the constants that a module runs. Other modules here know no other form.
"""

from __future__ import annotations

import ast
import io
import re
import threading
import tokenize
import unicodedata
import warnings

# Syntax trees


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
    # Without blank lines there are fewer: they are searched for where that may decide.
    if len(source) <= MOST_SIGNS or len(source.translate(None, delete=_NO_SIGNS)) <= MOST_SIGNS:
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


# Normal form


_BOM = b"\xef\xbb\xbf"
#: Encodings with decoding time quadratic in the length.
_SLOW = frozenset({"punycode", "idna"})
_LARGEST_SLOW = 64 << 10
#: Words of lines whose identifiers are normalized; others do not matter.
_RELEVANT = re.compile(
    r"import|from|[dD][lL][lL]|[lL]oad|dlopen|librar|register_fake|impl_abstract"
)
#: Text that makes a tree worth a second look.
_UNUSUAL = re.compile(rb"\b(?:exec|eval)\b|\bexcept[ \t]*\*")
#: Texts inside of texts that are run.
_DEEPEST = 3
_LARGEST_TEXT = 64 << 10


def normalize_source(source: bytes) -> bytes:
    """Return the text of a file in UTF-8; unchanged if Python could not decode it either."""
    if b"\r" in source:
        source = source.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    is_ascii = source.isascii()
    if is_ascii and not _may_have_cookie(source):
        return source
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(source).readline)[0]
        if encoding in _SLOW and len(source) > _LARGEST_SLOW:
            return source
        if is_ascii and encoding in ("utf-8", "ascii", "iso-8859-1"):
            return source
        text = source.removeprefix(_BOM).decode(encoding.removesuffix("-sig"))
    except (SyntaxError, LookupError, ValueError):
        return source
    if encoding not in ("utf-8", "utf-8-sig"):
        # Otherwise the cookie would be believed again.
        first, end, rest = text.partition("\n")
        second, other_end, rest = rest.partition("\n")
        text = (first + end + second + other_end).replace("coding", "Coding") + rest
    if not unicodedata.is_normalized("NFKC", text):
        text = "\n".join(map(_normalize_identifiers, text.split("\n")))
    return re.sub("\r\n?", "\n", text).encode("utf-8", "replace")


def _may_have_cookie(source: bytes) -> bool:
    """True if one of the first two lines may name an encoding (PEP 263)."""
    end = source.find(b"\n", source.find(b"\n") + 1)
    return b"coding" in source[: end if end >= 0 else len(source)]


def _normalize_identifiers(line: str) -> str:
    """Return a line with identifiers normalized as by the parser, if it may import or load."""
    if line.isascii():
        return line
    spelled = unicodedata.normalize("NFKC", line)
    return spelled if "\n" not in spelled and _RELEVANT.search(spelled) else line


def startup_lines(source: bytes) -> bytes:
    """Return the lines of a `.pth` file that `site` runs when Python starts; blank others."""
    lines = source.removeprefix(_BOM).decode("utf-8", "replace").splitlines()
    is_run = (line.startswith(("import ", "import\t")) for line in lines)
    return "\n".join(line if run else "" for line, run in zip(lines, is_run, strict=True)).encode()


def simplify_tree(tree: ast.Module, source: bytes, *, strip_annotations: bool) -> ast.Module:
    """Bring the `tree` of `source` into the form described above, in place."""
    if strip_annotations or _UNUSUAL.search(source):
        keeps_text = any(
            isinstance(statement, ast.ImportFrom)
            and statement.module == "__future__"
            and any(alias.name == "annotations" for alias in statement.names)
            for statement in tree.body
        )
        _Simplifier(keeps_text).visit(tree)
    return tree


class _Simplifier(ast.NodeTransformer):
    def __init__(self, keeps_text: bool) -> None:
        #: True if annotations are text that is never run.
        self._keeps_text = keeps_text
        self._functions = 0
        self._texts = 0

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        """Visit a function, whose own annotations belong to the scope around it."""
        if self._keeps_text:
            node.returns = None
            for argument in ast.iter_child_nodes(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
        self._functions += 1
        self.generic_visit(node)
        self._functions -= 1
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Visit a class, whose annotations are always evaluated."""
        functions, self._functions = self._functions, 0
        self.generic_visit(node)
        self._functions = functions
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Visit an annotated name; inside functions, the annotation is not evaluated."""
        if self._keeps_text or self._functions:
            node.annotation = ast.copy_location(ast.Constant(None), node.annotation)
        self.generic_visit(node)
        return node

    def visit_TryStar(self, node: ast.AST) -> ast.AST:
        """Convert `except*` to `except`."""
        self.generic_visit(node)
        fields = {name: getattr(node, name) for name in ast.Try._fields}
        return ast.copy_location(ast.Try(**fields), node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Replace `exec("...")` with its code."""
        tree = self._run(node.value, "exec")
        if not isinstance(tree, ast.Module):
            self.generic_visit(node)
            return node
        body = tree.body or [ast.Pass()]
        return _set_location(ast.If(ast.Constant(True), body, []), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace `eval("...")` with its expression."""
        tree = self._run(node, "eval")
        if isinstance(tree, ast.Expression):
            return _set_location(tree.body, node)
        self.generic_visit(node)
        return node

    def _run(self, node: ast.expr, mode: str) -> ast.AST | None:
        """Parse the constant that a call runs."""
        if self._texts >= _DEEPEST:
            return None
        match node:
            case ast.Call(
                func=ast.Name(id=name),
                args=[
                    ast.Call(
                        func=ast.Name(id="compile"),
                        args=[ast.Constant(value=str() | bytes() as text), *_],
                    )
                    | ast.Constant(value=str() | bytes() as text),
                    *_,
                ],
            ) if name == mode and len(text) <= _LARGEST_TEXT:
                pass
            case _:
                return None
        try:
            tree = parse_with_lock(text if isinstance(text, str) else normalize_source(text))
        except (SyntaxError, ValueError, LookupError, RecursionError, MemoryError):
            return None
        self._texts += 1
        self.visit(tree)
        self._texts -= 1
        if mode == "exec":
            return tree
        match tree.body:
            case [ast.Expr(value=value)]:
                return ast.Expression(value)
        return None


def _set_location(tree: ast.AST, at: ast.expr | ast.stmt) -> ast.AST:
    """Give all nodes of `tree` the location of `at`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.stmt | ast.excepthandler | ast.arg | ast.alias):
            ast.copy_location(node, at)
    return ast.fix_missing_locations(tree)
