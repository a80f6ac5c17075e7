"""Target triple of LLVM bitcode.

Source: LLVM's docs/BitCodeFormat.rst. Bitcode is a stream of bits, lowest first, in blocks. The
triple is a record of the module block that LLVM writes without an abbreviation.
"""

from __future__ import annotations

from buildmatrix.elf.source import ByteSource

MAGIC = b"BC\xc0\xde"
WRAPPER_MAGIC = b"\xde\xc0\x17\x0b"

#: Bytes searched. Blocks of attributes and types come first and take some ten kilobytes.
_SEARCHED = 1 << 20
_MOST_ITEMS = 4096
_LONGEST_TRIPLE = 256

_END_BLOCK, _ENTER_BLOCK, _DEFINE_ABBREVIATION, _RECORD = range(4)
_MODULE_BLOCK = 8
_TRIPLE = 2


def read_triple(source: ByteSource, offset: int, limit: int) -> str | None:
    """Return `nvptx64-nvidia-cuda`, `amdgcn-amd-amdhsa`, `x86_64-...`; None if unreadable."""
    data = source.read(offset, min(_SEARCHED, limit - offset))
    if data.startswith(WRAPPER_MAGIC):
        # magic, version, offset, size, CPU type
        start = int.from_bytes(data[8:12], "little")
        data = source.read(offset + start, max(0, min(_SEARCHED, limit - offset - start)))
    if not data.startswith(MAGIC):
        return None
    try:
        return _read_module_triple(_Bits(data))
    except _BrokenBitcode:
        return None


class _BrokenBitcode(Exception):
    """The stream is truncated or uses a feature that this reader does not support."""


class _Bits:
    """Bit reader, lowest bit of each byte first."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 8 * len(MAGIC)

    def fixed(self, width: int) -> int:
        """Read a number of `width` bits."""
        first, last = self.at // 8, (self.at + width + 7) // 8
        if last > len(self._data):
            raise _BrokenBitcode
        word = int.from_bytes(self._data[first:last], "little") >> self.at % 8
        self.at += width
        return word & (1 << width) - 1

    def variable(self, width: int) -> int:
        """Read a number in groups of `width` bits; the highest bit says if another follows."""
        more = 1 << width - 1
        value = shift = 0
        while shift < 64:
            group = self.fixed(width)
            value |= (group & more - 1) << shift
            if not group & more:
                return value
            shift += width - 1
        raise _BrokenBitcode

    def align(self) -> None:
        """Continue at the next multiple of 32 bits."""
        self.at += -self.at % 32


def _read_module_triple(bits: _Bits) -> str | None:
    width, inside = 2, False
    for _ in range(_MOST_ITEMS):
        code = bits.fixed(width)
        if code == _ENTER_BLOCK:
            block, new_width = bits.variable(8), bits.variable(4)
            bits.align()
            words = bits.fixed(32)
            if block == _MODULE_BLOCK and not inside and 2 <= new_width <= 32:
                width, inside = new_width, True
            else:
                bits.at += 32 * words
        elif code == _DEFINE_ABBREVIATION and inside:
            _skip_abbreviation(bits)
        elif code == _RECORD and inside:
            number, count = bits.variable(6), bits.variable(6)
            if number == _TRIPLE and count <= _LONGEST_TRIPLE:
                letters = bytes(bits.variable(6) & 0xFF for _ in range(count))
                return letters.decode("ascii", "replace")
            if count > _SEARCHED:
                raise _BrokenBitcode
            for _ in range(count):
                bits.variable(6)
        else:
            # The end of the module, or an abbreviated record: the triple would have come before.
            return None
    return None


def _skip_abbreviation(bits: _Bits) -> None:
    for _ in range(bits.variable(5)):
        if bits.fixed(1):
            bits.variable(8)
        elif bits.fixed(3) in (1, 2):
            bits.variable(5)
