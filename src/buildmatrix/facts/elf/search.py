"""Regions of a file worth searching, and the search for library names and marks."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from buildmatrix.facts.elf import layout as abi
from buildmatrix.facts.elf.headers import Dynamic, Headers, SectionHeader
from buildmatrix.facts.elf.model import Literal, Mark
from buildmatrix.facts.elf.sieve import Sieve

# Regions of device code, and of the host's data and code.
#
# A byte belongs to one region at most, however the sections of a hostile file overlap: scanning all
# regions reads each byte of the file once.


#: Sections that compilers fill with device code and nothing else; names may go on after these.
DEVICE_SECTIONS = (
    ".nv_fatbin",
    "__nv_relfatbin",
    ".hip_fatbin",
    "__CLANG_OFFLOAD_BUNDLE__",
    ".llvm.offloading",
)
#: Sections of the host that need not be searched: unwinding and offset tables have no strings, and
#: the interpreter is read by itself.
SKIPPED = (".eh_frame", ".gcc_except_table", ".got", ".plt", ".interp")

#: Bytes per read of a search: a window then stays in the cache of the processor for all passes over
#: it. Of 64 KiB to 4 MiB, 128 to 512 KiB were the fastest.
CHUNK = 512 << 10
#: Bytes kept before and after what a window is searched for, so that no match is cut in two.
BEFORE = 256
AFTER = 128


@dataclass(frozen=True, slots=True)
class Region:
    """A run of bytes in the file; `section` is its name where sections exist."""

    offset: int
    size: int
    section: str | None
    executable: bool

    @property
    def end(self) -> int:
        """Offset of the first byte behind it."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a region. Matches that begin in `data[start:stop]` are its own."""

    #: File offset of `data[0]`.
    offset: int
    data: bytes
    start: int
    stop: int


def device_regions(headers: Headers, size: int) -> tuple[Region, ...]:
    """The sections that hold device code by their name, in file order."""
    return tuple(
        disjoint((_region(s) for s in headers.sections if s.name.startswith(DEVICE_SECTIONS)), size)
    )


def host_regions(headers: Headers, dynamic: Dynamic, size: int) -> tuple[Region, ...]:
    """Return the regions that are loaded as data or code of the host, in file order.

    Symbol and string tables are left out: names in there load nothing. So are debug information and
    bytes outside all sections, where patchelf leaves old names. Without section headers these are
    the segments, less the dynamic string table.
    """
    if headers.sections:
        regions = [
            _region(s)
            for s in headers.sections
            if s.type == abi.SHT_PROGBITS
            and s.flags & abi.SHF_ALLOC
            and not s.name.startswith(DEVICE_SECTIONS)
            and not s.name.startswith(SKIPPED)
        ]
        return tuple(disjoint(regions, size))
    strings_end = dynamic.strings_at + dynamic.strings_size
    separate = code_is_separate(headers)
    regions = []
    for segment in headers.segments:
        if segment.type == abi.PT_LOAD:
            code = separate and bool(segment.flags & abi.PF_X)
            end = segment.offset + segment.size
            before = min(end, max(segment.offset, dynamic.strings_at))
            after = max(segment.offset, min(end, strings_end))
            regions.append(Region(segment.offset, before - segment.offset, None, code))
            regions.append(Region(after, end - after, None, code))
    return tuple(disjoint(regions, size))


def code_is_separate(headers: Headers) -> bool:
    """Return True if an executable segment holds nothing but code.

    Then the file's headers lie in a segment for constants. Without `-z separate-code`, linkers put
    headers, code and constants into one.
    """
    loads = [segment for segment in headers.segments if segment.type == abi.PT_LOAD]
    first = min(loads, key=lambda segment: segment.offset, default=None)
    return first is not None and not first.flags & (abi.PF_X | abi.PF_W)


def _region(section: SectionHeader) -> Region:
    executable = bool(section.flags & abi.SHF_EXECINSTR)
    return Region(section.offset, section.on_disk, section.name, executable)


def disjoint(regions: Iterable[Region], size: int) -> Iterator[Region]:
    """Yield the regions in file order, cut to the file and to bytes that no earlier one covers."""
    covered = 0
    for region in sorted(regions, key=lambda r: (r.offset, -r.size)):
        start = max(region.offset, covered)
        end = min(region.end, size)
        if start < end:
            yield Region(start, end - start, region.section, region.executable)
            covered = end


# Names of shared libraries that may be dlopen'ed.
#
# Found are `lib<name>.so` with or without a version (`libcuda.so.1`, `libOpenCL.so`) and other
# names that carry one (`ld-linux-x86-64.so.2`), also at the end of a path, inside a sentence, and
# in the string tables of Rust and Go, which have no NUL between two strings.
#
# Not found are names put together at run time (`"lib" + name + ".so"`), names that a compiler split
# into immediate operands (`mov rax, "libnccl."`), and names that are encoded or compressed.
# `lib*.so` with a lower-case word directly behind it may as well be `library.source`: it counts
# only with another character directly before it, as in a string table without NUL; the catalogue of
# library names decides.


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
        #: True if the file has more than the limits allow.
        self.incomplete = False

    def search(self, window: Window, region: Region) -> None:
        """Add the names that begin their `.so` in this window."""
        if region.executable and not _holds_lib(window.data):
            return
        for hit in _SEARCHED.finditer(window.data, window.start, window.stop + len(SO) - 1):
            if self.incomplete:
                return
            self.look(window, region, hit.start())

    def look(self, window: Window, region: Region, dot: int) -> None:
        """Add the name around the `.so` at `dot` of this window; call in file order."""
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
        exact = _is_whole_string(data, begin, end)
        packed = not exact and _is_packed(data, begin, end)
        if literal is None or exact or (packed and not literal.packed):
            text = name.decode("ascii")
            self._literals[key] = Literal(text, offset, region.section, exact, packed)


def _holds_lib(data: bytes) -> bool:
    """Return True if the data holds `lib`, in a third of the time of any search for it.

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
    """Return the start and end of the name around `.so` at `dot`; None if there is none.

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
    """Return True if other strings touch the name on both sides."""
    before = data[begin - 1 : begin]
    return (before.isalnum() or before == b"/") and data[end : end + 1].isalnum()


def _is_whole_string(data: bytes, begin: int, end: int) -> bool:
    """Return True if the name, or a path that ends with it, is a whole string."""
    if data[end : end + 1] not in (b"\0", b""):
        return False
    before = data[max(0, begin - LONGEST_STEM) : begin]
    if before.endswith(b"/"):
        before = before.rstrip(_PATH)
    return before[-1:] in (b"\0", b"")


# Marks: byte sequences that prove static linking, under neutral names.
#
# Each is a string of the library's own implementation that its callers do not have. The catalogue
# assigns marks to vendors.


#: Name of a mark and its bytes, at most `AFTER` of them.
MARKS: Mapping[str, bytes] = MappingProxyType(
    {
        "cudart-error-string": b"CUDA driver version is insufficient for CUDA runtime version",
        "cudart-shared-memory": b"/cudart.shm.",
        "cublaslt-log-variable": b"CUBLASLT_LOG_MASK",
        "cusparse-error-string": b"Blocked Ell SpMM supports only GPU architectures",
        "cufft-variable": b"CUFFT_DISABLE_CONTIGUOUS_SUBBATCHING",
        # A fork for other hardware begins with another name.
        "nccl-version-line": b"\0NCCL version 2.",
        "nvrtc-error-prefix": b"nvrtc: error: failed with an internal error",
        "nvjitlink-version-hint": b"may need newer version of nvJitLink library",
        "hip-error-string": b"no ROCm-capable device is detected",
        "sycl-cache-variable": b"SYCL_CACHE_DISABLE_PERSISTENT",
        # UR_ADAPTERS_FORCE_LOAD is also in the adapters that the loader loads.
        "ur-loader-variable": b"UR_ADAPTERS_SEARCH_PATH",
        # Two loaders of different origin; OCL_ICD_VENDORS, which both have, is set by callers too.
        "ocl-icd-variable": b"OCL_ICD_ASSUME_ICD_EXTENSION",
        "khronos-icd-variable": b"OCL_ICD_FILENAMES",
        "openmp-double-start": b"Initializing %1$s, but found %2$s already initialized.",
        "mkl-error-prefix": b"MKL ERROR: %s.",
        "mkl-verbose-warning": b"MKL_VERBOSE WARNING: %s",
        "mkl-verbose-end": b"MKL_VERBOSE END %s()",
        "onednn-version-line": b"oneDNN v%d.%d.%d (commit %s)",
    }
)


_NAMES = {needle: name for name, needle in MARKS.items()}
_SIEVE = Sieve(_NAMES, anchors=b".CL")


class MarkFinder:
    """Collects the first occurrence of each mark from the windows of one file, in file order."""

    def __init__(self) -> None:
        self._marks: dict[str, Mark] = {}

    def search(self, window: Window) -> None:
        """Add the marks that begin in this window and were not found before."""
        for begin, needle in _SIEVE.hits(window.data, window.start, window.stop):
            self.add(_NAMES[needle], window.offset + begin)

    def add(self, name: str, offset: int) -> None:
        """Add a mark found at `offset`."""
        self._marks.setdefault(name, Mark(name, offset))

    def __contains__(self, name: str) -> bool:
        """Return True if the mark was found."""
        return name in self._marks

    def marks(self) -> tuple[Mark, ...]:
        """Marks in the order of the file."""
        return tuple(sorted(self._marks.values(), key=lambda mark: mark.offset))
