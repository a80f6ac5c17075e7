"""The beginning of a Zstandard frame, decompressed without a library (RFC 8878).

The table of a compressed offload bundle stands in its first few kilobytes. The standard library
reads Zstandard only since Python 3.14, and the scanner runs where nothing can be installed. So this
decodes as far as it is asked and no further: what lies behind costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

MAGIC = b"\x28\xb5\x2f\xfd"

_LITERAL_BASES = (
    *range(16), 16, 18, 20, 22, 24, 28, 32, 40, 48, 64,
    128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536,
)  # fmt: skip
_LITERAL_BITS = (*[0] * 16, 1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
_MATCH_BASES = (
    *range(3, 35), 35, 37, 39, 41, 43, 47, 51, 59, 67, 83,
    99, 131, 259, 515, 1027, 2051, 4099, 8195, 16387, 32771, 65539,
)  # fmt: skip
_MATCH_BITS = (*[0] * 32, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
_LITERAL_DEFAULT = (
    4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1,
    -1, -1, -1, -1,
)  # fmt: skip
_MATCH_DEFAULT = (1, 4, 3, 2, 2, 2, 2, 2, 2, *[1] * 37, *[-1] * 7)
_OFFSET_DEFAULT = (1, 1, 1, 1, 1, 1, 2, 2, 2, *[1] * 15, *[-1] * 5)

#: Largest accuracies that the RFC allows, and the largest symbols.
_LITERAL_LIMITS = (9, 35)
_MATCH_LIMITS = (9, 52)
_OFFSET_LIMITS = (8, 31)
_LARGEST_BLOCK = 128 << 10
_LONGEST_CODE = 11


def head(data: bytes, limit: int) -> bytes:
    """The first `limit` decompressed bytes, fewer where the frame or `data` ends.

    Raises:
        ValueError: `data` is no Zstandard frame, or its content is damaged.
    """
    try:
        return _Frame(data).head(limit)
    except IndexError:
        raise ValueError("the frame is damaged") from None


class _Forward:
    """Bits from the lowest of the first byte on, as table descriptions are written."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def peek(self, bits: int) -> int:
        start = self.position >> 3
        value = int.from_bytes(self._data[start : start + 4], "little")
        return value >> (self.position & 7) & ((1 << bits) - 1)

    def take(self, bits: int) -> int:
        value = self.peek(bits)
        self.position += bits
        if self.position > 8 * len(self._data):
            raise ValueError("a table description is cut short")
        return value


class _Backward:
    """Bits from the end of the data, behind the highest set one; zeros in front of the start."""

    def __init__(self, data: bytes) -> None:
        if not data or not data[-1]:
            raise ValueError("a bit stream has no end mark")
        self._data = data
        self.position = 8 * (len(data) - 1) + data[-1].bit_length() - 1

    def take(self, bits: int) -> int:
        self.position -= bits
        start = self.position
        if start < 0:
            if start + bits <= 0:
                return 0
            known = start + bits
            value = int.from_bytes(self._data[: known + 7 >> 3], "little")
            return (value & ((1 << known) - 1)) << -start
        first = start >> 3
        value = int.from_bytes(self._data[first : start + bits + 7 >> 3], "little")
        return value >> (start & 7) & ((1 << bits) - 1)


@dataclass(frozen=True, slots=True)
class _States:
    """A finite state entropy table: for each state a symbol, and how the next state is found."""

    accuracy: int
    symbols: list[int]
    bits: list[int]
    bases: list[int]


def _states(counts: tuple[int, ...], accuracy: int) -> _States:
    """RFC 8878, section 4.1.1: spreads the symbols over the states."""
    size = 1 << accuracy
    symbols = [0] * size
    following = [abs(count) for count in counts]
    high = size
    for symbol, count in enumerate(counts):
        if count == -1:
            high -= 1
            symbols[high] = symbol
    step = (size >> 1) + (size >> 3) + 3
    at = 0
    for symbol, count in enumerate(counts):
        for _ in range(count):
            symbols[at] = symbol
            at = at + step & size - 1
            while at >= high:
                at = at + step & size - 1
    bits, bases = [], []
    for symbol in symbols:
        state = following[symbol]
        following[symbol] += 1
        width = accuracy - state.bit_length() + 1
        bits.append(width)
        bases.append((state << width) - size)
    return _States(accuracy, symbols, bits, bases)


@cache
def _default(counts: tuple[int, ...], accuracy: int) -> _States:
    return _states(counts, accuracy)


def _described(data: bytes, limits: tuple[int, int]) -> tuple[_States, int]:
    """A table from its description, and how many bytes that took."""
    most_accuracy, most_symbol = limits
    stream = _Forward(data)
    accuracy = stream.take(4) + 5
    if accuracy > most_accuracy:
        raise ValueError("a table is larger than allowed")
    remaining = 1 << accuracy
    counts: list[int] = []
    while remaining > 0 and len(counts) <= most_symbol:
        width = (remaining + 1).bit_length()
        value = stream.peek(width)
        low = value & ((1 << width - 1) - 1)
        spare = (1 << width) - 2 - remaining
        if low < spare:
            stream.take(width - 1)
            value = low
        else:
            stream.take(width)
            if value >= 1 << width - 1:
                value -= spare
        counts.append(value - 1)
        remaining -= abs(value - 1)
        if value == 1:
            repeat = 3
            while repeat == 3:
                repeat = stream.take(2)
                counts.extend([0] * repeat)
    if remaining or len(counts) > most_symbol + 1:
        raise ValueError("the counts of a table do not add up")
    return _states(tuple(counts), accuracy), stream.position + 7 >> 3


@dataclass(frozen=True, slots=True)
class _Codes:
    """A Huffman table, indexed by the next `width` bits."""

    width: int
    symbols: list[int]
    bits: list[int]


def _codes(data: bytes) -> tuple[_Codes, int]:
    """RFC 8878, section 4.2.1: a Huffman table from its description, and that one's length."""
    first = data[0]
    if first < 128:
        used = 1 + first
        weights = _weights(data[1:used])
    else:
        count = first - 127
        used = 1 + (count + 1 >> 1)
        packed = data[1:used]
        weights = [packed[i >> 1] >> (0 if i & 1 else 4) & 15 for i in range(count)]
    total = sum(1 << weight >> 1 for weight in weights)
    if not total:
        raise ValueError("a Huffman table is empty")
    width = total.bit_length()
    left = (1 << width) - total
    if width > _LONGEST_CODE or left & left - 1:
        raise ValueError("the weights of a Huffman table do not add up")
    weights.append(left.bit_length())
    symbols: list[int] = []
    bits: list[int] = []
    for weight in range(1, width + 1):
        for symbol, own in enumerate(weights):
            if own == weight:
                symbols += [symbol] * (1 << weight - 1)
                bits += [width + 1 - weight] * (1 << weight - 1)
    return _Codes(width, symbols, bits), used


def _weights(data: bytes) -> list[int]:
    table, used = _described(data, (6, 255))
    stream = _Backward(data[used:])
    states = [stream.take(table.accuracy), stream.take(table.accuracy)]
    weights: list[int] = []
    turn = 0
    while len(weights) < 255:
        state = states[turn]
        weights.append(table.symbols[state])
        states[turn] = table.bases[state] + stream.take(table.bits[state])
        turn ^= 1
        if stream.position < 0:
            weights.append(table.symbols[states[turn]])
            return weights
    raise ValueError("a Huffman table has too many weights")


def _decoded(data: bytes, table: _Codes, count: int) -> bytes:
    """The first `count` symbols of a Huffman stream."""
    stream = _Backward(data)
    mask = (1 << table.width) - 1
    state = stream.take(table.width)
    out = bytearray()
    for _ in range(count):
        out.append(table.symbols[state])
        width = table.bits[state]
        state = (state << width | stream.take(width)) & mask
    return bytes(out)


class _Frame:
    """The state that one block leaves to the next: history, tables, repeated offsets."""

    def __init__(self, data: bytes) -> None:
        if not data.startswith(MAGIC):
            raise ValueError("it is no Zstandard frame")
        descriptor = data[4]
        single = descriptor >> 5 & 1
        content = (single, 2, 4, 8)[descriptor >> 6]
        self._data = data
        self._at = 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + content
        self._out = bytearray()
        self._codes: _Codes | None = None
        self._tables: list[_States | None] = [None, None, None]
        self._offsets = [1, 4, 8]

    def head(self, limit: int) -> bytes:
        last = False
        while not last and len(self._out) < limit and self._at + 3 <= len(self._data):
            header = int.from_bytes(self._data[self._at : self._at + 3], "little")
            last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
            self._at += 3
            if size > _LARGEST_BLOCK:
                raise ValueError("a block is larger than allowed")
            block = self._data[self._at : self._at + (1 if kind == 1 else size)]
            self._at += len(block)
            if kind == 0:
                self._out += block
            elif kind == 1:
                self._out += block * size
            elif kind == 2 and len(block) == size:
                self._block(block, limit)
            elif kind == 3:
                raise ValueError("a block has the reserved type")
            else:
                break  # the data ends inside this block
        return bytes(self._out[:limit])

    def _block(self, block: bytes, limit: int) -> None:
        literals, used = self._literals(block, limit - len(self._out))
        at = used
        count = block[at]
        at += 1
        if count >= 128:
            if count < 255:
                count = (count - 128 << 8) + block[at]
                at += 1
            else:
                count = block[at] + (block[at + 1] << 8) + 0x7F00
                at += 2
        if not count:
            self._out += literals
            return
        modes = block[at]
        at += 1
        at += self._table(0, modes >> 6, block[at:], _LITERAL_DEFAULT, 6, _LITERAL_LIMITS)
        at += self._table(1, modes >> 4 & 3, block[at:], _OFFSET_DEFAULT, 5, _OFFSET_LIMITS)
        at += self._table(2, modes >> 2 & 3, block[at:], _MATCH_DEFAULT, 6, _MATCH_LIMITS)
        self._sequences(_Backward(block[at:]), count, literals, limit)

    def _literals(self, block: bytes, wanted: int) -> tuple[bytes, int]:
        """The first `wanted` literals, and the length of the whole section."""
        kind, form = block[0] & 3, block[0] >> 2 & 3
        if kind < 2:
            used = (1, 2, 1, 3)[form]
            size = int.from_bytes(block[:used], "little") >> (4 if form & 1 else 3)
            if kind == 1:
                return block[used : used + 1] * min(size, _LARGEST_BLOCK), used + 1
            return block[used : used + size], used + size
        used = (3, 3, 4, 5)[form]
        width = (10, 10, 14, 18)[form]
        sizes = int.from_bytes(block[:used], "little") >> 4
        size, packed = sizes & ((1 << width) - 1), sizes >> width
        data = block[used : used + packed]
        if kind == 2:
            self._codes, described = _codes(data)
            data = data[described:]
        if self._codes is None or size > _LARGEST_BLOCK:
            raise ValueError("literals have no Huffman table or are too many")
        streams, each = [data], size
        if form:
            ends = [6]
            for index in range(3):
                length = int.from_bytes(data[2 * index : 2 * index + 2], "little")
                ends.append(ends[-1] + length)
            streams = [data[a:b] for a, b in zip(ends, [*ends[1:], len(data)], strict=True)]
            each = size + 3 >> 2
        literals = b""
        for stream in streams:
            count = min(each, size - len(literals), wanted - len(literals))
            if count > 0:
                literals += _decoded(stream, self._codes, count)
        return literals, used + packed

    def _table(
        self,
        slot: int,
        mode: int,
        data: bytes,
        default: tuple[int, ...],
        accuracy: int,
        limits: tuple[int, int],
    ) -> int:
        """Sets one of the three tables as its mode says; returns the bytes used."""
        if mode == 0:
            self._tables[slot] = _default(default, accuracy)
            return 0
        if mode == 1:
            self._tables[slot] = _States(0, [data[0]], [0], [0])
            return 1
        if mode == 2:
            self._tables[slot], used = _described(data, limits)
            return used
        return 0

    def _sequences(self, stream: _Backward, count: int, literals: bytes, limit: int) -> None:
        out = self._out
        lengths, offsets, matches = self._tables
        if lengths is None or offsets is None or matches is None:
            raise ValueError("a table is repeated that never was")
        length_state = stream.take(lengths.accuracy)
        offset_state = stream.take(offsets.accuracy)
        match_state = stream.take(matches.accuracy)
        used = 0
        for left in range(count - 1, -1, -1):
            code = offsets.symbols[offset_state]
            offset = (1 << code) + stream.take(code)
            code = matches.symbols[match_state]
            match = _MATCH_BASES[code] + stream.take(_MATCH_BITS[code])
            code = lengths.symbols[length_state]
            length = _LITERAL_BASES[code] + stream.take(_LITERAL_BITS[code])
            out += literals[used : used + length]
            used += length
            if len(out) >= limit:
                return
            distance = self._distance(offset, length)
            if not 0 < distance <= len(out):
                raise ValueError("a match begins before the start")
            start = len(out) - distance
            match = min(match, limit - len(out))
            repeated = out[start : start + match]
            while len(repeated) < match:
                repeated += repeated[: match - len(repeated)]
            out += repeated
            if len(out) >= limit:
                return
            if left:
                length_state = lengths.bases[length_state] + stream.take(lengths.bits[length_state])
                match_state = matches.bases[match_state] + stream.take(matches.bits[match_state])
                offset_state = offsets.bases[offset_state] + stream.take(offsets.bits[offset_state])
        out += literals[used:]

    def _distance(self, value: int, literals: int) -> int:
        """RFC 8878, section 3.1.1.5: values 1 to 3 repeat one of the last three offsets."""
        recent = self._offsets
        if value > 3:
            self._offsets = [value - 3, recent[0], recent[1]]
            return value - 3
        index = value - 1 if literals else value
        if index == 0:
            return recent[0]
        distance = recent[0] - 1 if index == 3 else recent[index]
        self._offsets = [distance, recent[0], recent[2 if index == 1 else 1]]
        return distance
