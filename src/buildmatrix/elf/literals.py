"""Strings in data and code that look like the names of shared libraries: what may be dlopen'ed.

Found are `lib<name>.so` with or without a version (`libcuda.so.1`, `libOpenCL.so`) and other names
that carry one (`ld-linux-x86-64.so.2`), also at the end of a path, inside a sentence, and in the
string tables of Rust and Go, which have no NUL between two strings.

Not found are names put together at run time (`"lib" + name + ".so"`), names that a compiler split
into immediate operands (`mov rax, "libnccl."`), and names that are encoded or compressed. `lib*.so`
with a lower-case word directly behind it may as well be `library.source`: it counts where something
stands directly before it, too, as in a string table without NUL, and
the catalogue of library names decides.
"""

from __future__ import annotations

import re
import string

from buildmatrix.elf.model import Literal
from buildmatrix.elf.regions import Region, Window

#: Different names kept of one file. Real files have up to a few hundred.
MOST_NAMES = 4096
#: Occurrences of `.so` that are looked at in one file.
MOST_HITS = 1 << 18
#: Longest part of a name before `.so`; the longest file name is 255 bytes.
LONGEST_STEM = 200

_NAME = (string.ascii_letters + string.digits + "_.+-").encode()
_PATH = _NAME + b"/@$"
SO = b".so"
#: A pattern of one literal is searched for twice as fast as by bytes.find.
_SEARCHED = re.compile(re.escape(SO))
_LIB = re.compile(rb"lib")
_L = ord("l")
#: Bytes that are leapt to in one window. Where they are frequent, plain search is faster.
_MOST_LEAPS = 1500
_VERSION = re.compile(rb"(?:\.[0-9]{1,8}){0,4}")
_WORD = re.compile(rb"[a-z0-9_]")


class LiteralFinder:
    """Collects the names from the windows of all regions of one file.

    With `everywhere`, every place of a name is kept: for callers that do not know yet which count.
    """

    def __init__(self, *, everywhere: bool = False) -> None:
        self._everywhere = everywhere
        self._literals: dict[tuple[bytes, int], Literal] = {}
        self._hits = 0
        #: Offset behind the last name.
        self._handled = 0
        #: True when the file holds more than is looked at.
        self.incomplete = False

    def search(self, window: Window, region: Region) -> None:
        """Adds the names that begin their `.so` in this window."""
        if region.executable and not _holds_lib(window.data):
            return
        for hit in _SEARCHED.finditer(window.data, window.start, window.stop + len(SO) - 1):
            if self.incomplete:
                return
            self.look(window, region, hit.start())

    def look(self, window: Window, region: Region, dot: int) -> None:
        """Adds the name around the `.so` at `dot` of this window; they come in file order."""
        self.incomplete |= self._hits >= MOST_HITS or len(self._literals) >= MOST_NAMES
        if self.incomplete:
            return
        self._hits += 1
        span = _name(window.data, dot, self._handled - window.offset)
        if span is None:
            return
        begin, end = span
        self._handled = window.offset + end
        # In code, the second half of a name that was split into operands looks like a name.
        if not region.executable or window.data.startswith(b"lib", begin):
            self._add(window.data, begin, end, window, region)

    def literals(self) -> tuple[Literal, ...]:
        """The names in the order of the file, each once."""
        return tuple(sorted(self._literals.values(), key=lambda literal: literal.offset))

    def _add(self, data: bytes, begin: int, end: int, window: Window, region: Region) -> None:
        name = data[begin:end]
        offset = window.offset + begin
        key = (name, offset if self._everywhere else 0)
        literal = self._literals.get(key)
        if literal is not None and literal.exact:
            return
        exact = _exact(data, begin, end)
        packed = not exact and _is_packed(data, begin, end)
        if literal is None or exact or (packed and not literal.packed):
            text = name.decode("ascii")
            self._literals[key] = Literal(text, offset, region.section, exact, packed)


def _holds_lib(data: bytes) -> bool:
    """Whether the data holds `lib`, in a third of the time that any search for it takes.

    `bytes.find` of one byte is memchr, and this one is rare in code.
    """
    at = data.find(b"i")
    for _ in range(_MOST_LEAPS):
        if at < 0:
            return False
        if data[at - 1] == _L and data.startswith(b"lib", at - 1):
            return True
        at = data.find(b"i", at + 1)
    return _LIB.search(data) is not None


def _name(data: bytes, dot: int, handled: int) -> tuple[int, int] | None:
    """Where the name around `.so` at `dot` begins and ends; None when it is none.

    `handled` is the end of the name before it, which a table without NUL runs into this one.
    """
    version_at = dot + len(SO)
    matched = _VERSION.match(data, version_at)
    end = matched.end() if matched else version_at
    versioned = end > version_at
    is_word = not versioned and _WORD.match(data, end) and not data.startswith(b"lib", end)
    before = data[max(handled, dot - LONGEST_STEM, 0) : dot]
    begin = dot - len(before) + len(before.rstrip(_NAME))
    if begin == dot:
        return None
    if not data.startswith(b"lib", begin):
        is_whole = data[begin - 1 : begin] in (b"\0", b"/") and data[end : end + 1] == b"\0"
        library = -1 if is_whole else data.rfind(b"lib", begin, dot)
        if library >= 0 and dot - library > len(b"lib"):
            begin = library
        elif not versioned:
            return None
    elif dot - begin == len(b"lib"):
        return None
    if is_word and not _is_packed(data, begin, end):
        return None
    return begin, end


def _is_packed(data: bytes, begin: int, end: int) -> bool:
    """Whether other strings stand directly before and behind the name, with nothing between."""
    before = data[begin - 1 : begin]
    return (before.isalnum() or before == b"/") and data[end : end + 1].isalnum()


def _exact(data: bytes, begin: int, end: int) -> bool:
    """Whether the name, or a path that ends with it, is a whole string."""
    if data[end : end + 1] not in (b"\0", b""):
        return False
    before = data[max(0, begin - LONGEST_STEM) : begin]
    if before.endswith(b"/"):
        before = before.rstrip(_PATH)
    return before[-1:] in (b"\0", b"")
