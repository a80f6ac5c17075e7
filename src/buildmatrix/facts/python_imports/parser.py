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
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

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
#: Text that makes a tree worth a second look: a call, perhaps with a comment or the end of a
#: bracket behind the name. Each pattern begins with letters, which are searched for fast.
_UNUSUAL = (
    re.compile(rb"exec(?<![.\w]exec)[\s\\)]*[(#]"),
    re.compile(rb"eval(?<![.\w]eval)[\s\\)]*[(#]"),
    re.compile(rb"except[ \t]*\*"),
)
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
    is_unusual = any(pattern.search(source) for pattern in _UNUSUAL)
    if is_unusual:
        _Simplifier().visit(tree)
    if strip_annotations or is_unusual:
        _strip_annotations(tree.body)
    return tree


def _strip_annotations(body: Sequence[ast.stmt]) -> None:
    """Remove the annotations that are never evaluated from all statements of a module.

    A function's own annotations belong to the scope around it; those of classes are evaluated.
    """
    are_texts = any(
        isinstance(statement, ast.ImportFrom)
        and statement.module == "__future__"
        and any(alias.name == "annotations" for alias in statement.names)
        for statement in body
    )
    #: Statements, each with True if it is in a function.
    ahead: list[tuple[ast.AST, bool]] = [(statement, False) for statement in body]
    while ahead:
        node, is_local = ahead.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            is_local = True
            if are_texts:
                node.returns = None
                for argument in ast.iter_child_nodes(node.args):
                    if isinstance(argument, ast.arg):
                        argument.annotation = None
        elif isinstance(node, ast.ClassDef):
            is_local = False
        elif isinstance(node, ast.AnnAssign) and (are_texts or is_local):
            node.annotation = ast.copy_location(ast.Constant(None), node.annotation)
        ahead.extend((child, is_local) for child in _inner_statements(node))


class _Simplifier(ast.NodeTransformer):
    def __init__(self) -> None:
        self._texts = 0

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


# Walks. Nodes without a meaning of their own are skipped: operators, and contexts of names. Several
# times as fast as those of `ast`.


Function = ast.FunctionDef | ast.AsyncFunctionDef

#: Fields that never hold a node, or only a skipped one.
_EMPTY = frozenset(
    {"ctx", "op", "ops", "id", "attr", "arg", "asname", "level", "module", "kind", "type_comment"}
    | {"conversion", "simple", "is_async", "tag"}
)
_LEAVES = (ast.Constant, ast.Global, ast.Nonlocal, ast.alias)


_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}


def children(node: ast.AST) -> list[ast.AST]:
    """Return the nodes directly below `node`, in the order of `ast.iter_child_nodes`."""
    kind = type(node)
    fields = _FIELDS.get(kind)
    if fields is None:
        names = () if kind in _LEAVES else kind._fields
        fields = _FIELDS[kind] = tuple(name for name in names if name not in _EMPTY)
    nodes: list[ast.AST] = []
    for name in fields:
        value = getattr(node, name, None)
        if value.__class__ is list:
            for child in value:
                if isinstance(child, ast.AST):
                    nodes.append(child)
        elif isinstance(value, ast.AST):
            nodes.append(value)
    return nodes


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield `node` and all nodes below it, level by level, like `ast.walk`."""
    level = [node]
    while level:
        yield from level
        level = [below for child in level for below in children(child)]


def evaluated_at_definition(node: Function | ast.ClassDef | ast.Lambda) -> list[ast.expr]:
    """Return the expressions evaluated when a function or class is defined, not when called."""
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *(word.value for word in node.keywords)]
    arguments = node.args
    made = [*arguments.defaults, *(item for item in arguments.kw_defaults if item is not None)]
    if isinstance(node, ast.Lambda):
        return made
    everyone = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    variadic = (item for item in (arguments.vararg, arguments.kwarg) if item is not None)
    annotations = (item.annotation for item in (*everyone, *variadic))
    return [
        *node.decorator_list,
        *made,
        *(item for item in (*annotations, node.returns) if item is not None),
    ]


def has_line(node: ast.stmt, lines: Sequence[int]) -> bool:
    """True if a statement, with its decorators, has one of `lines`, which are sorted."""
    first = node.lineno
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        first = min([first, *(child.lineno for child in node.decorator_list)])
    at = bisect_left(lines, first)
    return at < len(lines) and lines[at] <= (node.end_lineno or first)


def last_name(node: ast.expr) -> str | None:
    """Return `c` for `c`, for `a.b.c`, and for a call of either."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=inner):
            return last_name(inner)
    return None


def dotted_name(node: ast.expr) -> str | None:
    """Return `a.b.c` for `a.b.c`; None for anything but names and attributes."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def all_statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield all statements, including those in functions and classes; expressions are skipped."""
    ahead: list[ast.AST] = list(body)
    while ahead:
        node = ahead.pop()
        if isinstance(node, ast.stmt):
            yield node
        ahead.extend(_inner_statements(node))


def _inner_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in a compound one, and its handlers and cases."""
    for name in _BLOCKS.get(type(node), ()):
        yield from getattr(node, name)


_BLOCK_FIELDS = ("body", "orelse", "finalbody", "handlers", "cases")
_COMPOUND: tuple[type[ast.AST], ...] = (
    *ast.stmt.__subclasses__(),
    ast.ExceptHandler,
    ast.match_case,
)
#: Compound statements, handlers and cases, with their fields that hold such.
_BLOCKS = {
    kind: tuple(name for name in _BLOCK_FIELDS if name in kind._fields) for kind in _COMPOUND
}


def definitions(body: Iterable[ast.stmt]) -> Iterator[Function | ast.ClassDef]:
    """Yield functions and classes, also behind conditions, but not nested ones."""
    ahead: list[ast.AST] = list(reversed(list(body)))
    while ahead:
        node = ahead.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node
        elif isinstance(node, (ast.stmt, ast.ExceptHandler)):
            ahead.extend(reversed(children(node)))


# Conditions


def evaluate_condition(
    test: ast.expr, decide: Callable[[ast.expr], bool | None] | None = None
) -> bool | None:
    """Return the outcome of a condition on Linux at import time; None if unknown.

    `decide` is called for conditions that depend on more than the system.
    """
    match test:
        case ast.Constant(value=value):
            return bool(value)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            outcome = evaluate_condition(inner, decide)
            return None if outcome is None else not outcome
        case ast.BoolOp(op=operator, values=values):
            outcomes = [evaluate_condition(value, decide) for value in values]
            any_of = isinstance(operator, ast.Or)
            if any_of in outcomes:
                return any_of
            return None if None in outcomes else not any_of
    outcome = _evaluate_system(test)
    return outcome if outcome is not None or decide is None else decide(test)


def _evaluate_system(test: ast.expr) -> bool | None:
    match test:
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return False
        case ast.Compare(
            left=left,
            ops=[ast.Eq() | ast.NotEq() | ast.In() | ast.NotIn() as operator],
            comparators=[right],
        ):
            actual, expected = _platform(left), _literals(right)
            equal = isinstance(operator, (ast.Eq, ast.In))
            if actual is None:
                actual, expected = _platform(right), _literals(left)
                if isinstance(operator, (ast.In, ast.NotIn)):
                    # `"win" in sys.platform` tests for a part of it.
                    if actual in (None, "module") or expected is None:
                        return None
                    return (expected[0] in actual) is equal
            if actual is None or expected is None:
                return None
            return (actual in expected) is equal
        case ast.Call(func=ast.Attribute(value=inner, attr="startswith"), args=[prefix]):
            actual, expected = _platform(inner), _literals(prefix)
            if actual is None or expected is None:
                return None
            return any(actual.startswith(start) for start in expected)
    return None


def _platform(node: ast.expr) -> str | None:
    """Return the value of a standard library expression for the system on Linux."""
    text = ast.unparse(node) if isinstance(node, (ast.Attribute, ast.Name, ast.Call)) else ""
    return {
        "os.name": "posix",
        "sys.platform": "linux",
        "platform.system()": "Linux",
        "platform.system().lower()": "linux",
        "__name__": "module",
    }.get(text[:40])


def _literals(node: ast.expr) -> tuple[str, ...] | None:
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    texts = [
        part.value for part in parts if isinstance(part, ast.Constant) and type(part.value) is str
    ]
    return tuple(texts) if len(texts) == len(parts) else None
