"""What the readers of `elf` promise for any bytes; used by the fuzzer and by the tests."""

from __future__ import annotations

from buildmatrix.facts.binaries.devicefile import read_device_file
from buildmatrix.facts.binaries.reader import Malformed, read_elf
from buildmatrix.facts.elf.symbols import read_symbols

#: Bytes that all readers together may read, as a multiple of the file, and beside it. Small tables
#: cost a block of 4 KiB each.
MULTIPLE = 64
BESIDE = 8 << 20


class Watched:
    """Bytes in memory that count what is read, and refuse what pread would."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.bytes_read = 0

    def read(self, offset: int, length: int) -> bytes:
        assert 0 <= offset < 1 << 63, "pread takes no other offset"
        assert 0 <= length <= len(self._data) + (8 << 20), "a table's claim sets the memory used"
        data = self._data[offset : offset + length]
        self.bytes_read += len(data)
        return data


def keeps_promises(data: bytes) -> None:
    """Reads `data` in every way; raises what no reader may raise."""
    source = Watched(data)
    for read in (read_elf, read_symbols):
        try:
            read(source, len(data))
        except Malformed as problem:
            assert problem.reason
    for name in ("x", "x.ptx", "x.ttgir"):
        read_device_file(source, len(data), name)
    assert source.bytes_read <= MULTIPLE * len(data) + BESIDE
